"""Whether XLA compiles the windows and losses of a run.

XLA is used only on GPUs, and only after a separate process has compared its gradients on each of
them: with a driver or a GPU that it does not support, XLA may abort its process. On a CPU,
TensorFlow's own kernels are faster.
"""

from __future__ import annotations

import sys
from typing import Any

from absl import logging

from bilm.errors import BilmError
from bilm.support.probes import ProbeFailure, answer, ask

SECONDS = 180.0  # to import TensorFlow and compile
TOLERANCE = 1e-4  # largest relative difference from TensorFlow's kernels, in float32


def use_xla(choice: str, gpus: list[str]) -> bool:
    """Return whether a run uses XLA, and log why.

    Args:
        choice: "on", "off", or "auto" to use XLA if there are GPUs and the probe succeeds on each.
        gpus: names of the GPUs, see `Devices.gpus`; none if a run uses the CPU.
    """
    if choice != "auto" or not gpus:
        return choice == "on"
    logging.info("testing XLA on %s; --xla=off skips this", ", ".join(gpus))
    try:
        found = ask("bilm.training.xla", *gpus, timeout=SECONDS)
    except ProbeFailure as error:
        logging.warning("XLA does not work here, so it is not used: %s", error)
        return False
    wrong = {name: value for name, value in found.items() if not value <= TOLERANCE}
    if wrong:
        logging.warning("XLA is not used, because its gradients differ by more than %g: %s",
                        TOLERANCE, wrong)  # fmt: skip
        return False
    logging.info("XLA compiles windows and losses")
    return True


def difference(device: str) -> float:
    """Return the largest relative difference between the gradients of a small LSTM stack with and
    without XLA on a device.

    Raises: BilmError if TensorFlow does not find the device.
    """
    import tensorflow as tf

    from bilm.layers.stack import LSTMStack

    found = [name.name.split("device:")[-1] for name in tf.config.list_logical_devices()]
    if device not in found:  # TensorFlow would compute on another one
        raise BilmError(f"{device} was not found; TensorFlow finds {', '.join(found)}")
    tf.config.experimental.enable_tensor_float_32_execution(False)
    stack = LSTMStack(2, 64, 16, cell_clip=3.0, proj_clip=3.0, use_skip_connections=True)

    def gradients(x: Any, state: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs, _ = stack(x, state, training=True)
            loss = tf.reduce_sum(tf.square(outputs[-1]))
        return tape.gradient(loss, [v.value for v in stack.trainable_variables])

    with tf.device(device):
        stack.build((None, None, 16))
        x = tf.random.stateless_normal((5, 8, 16), (0, 1))
        arguments = x, stack.zero_state(8)
        compiled, expected = (
            tf.function(gradients, jit_compile=xla, autograph=False)(*arguments)
            for xla in (True, False)
        )
        pairs = zip(compiled, expected, strict=True)
        return max(float(tf.reduce_max(tf.abs(a - b)) / tf.reduce_max(tf.abs(b))) for a, b in pairs)


if __name__ == "__main__":
    answer({name: difference(name) for name in sys.argv[1:]})
