"""What a run computes on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import tensorflow as tf

from bilm.errors import BilmError


def make_strategy(
    gpus: Sequence[int] | None = None, n_gpus: int | None = None, cpu_replicas: int = 1
) -> tf.distribute.MirroredStrategy:
    """Choose the devices: GPUs by number, the first `n_gpus`, all of them, or the CPU.

    Args:
        gpus: numbers of the GPUs to use.
        n_gpus: how many to use; 0 is the CPU.
        cpu_replicas: how many logical CPU devices share the CPU where no GPU is used.
    Raises: BilmError if more are asked for than exist.
    """
    found = tf.config.list_physical_devices("GPU")
    if gpus is None:
        gpus = range(len(found) if n_gpus is None else n_gpus)
    missing = [k for k in gpus if k >= len(found) or k < 0]
    if missing:
        raise BilmError(f"GPU {missing[0]} was asked for, but TensorFlow finds {len(found)} here")
    if gpus:
        return tf.distribute.MirroredStrategy([f"GPU:{k}" for k in gpus])
    if cpu_replicas > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        one = tf.config.LogicalDeviceConfiguration()
        with suppress(RuntimeError):  # TensorFlow has started, with the devices that there are
            tf.config.set_logical_device_configuration(cpu, [one] * cpu_replicas)
    n_cpus = len(tf.config.list_logical_devices("CPU"))
    if cpu_replicas > n_cpus:
        raise BilmError(
            f"{cpu_replicas} CPU replicas were asked for, but TensorFlow has started with {n_cpus}"
        )
    return tf.distribute.MirroredStrategy([f"CPU:{k}" for k in range(cpu_replicas)])
