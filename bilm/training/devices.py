"""What a run computes on, and whether this process writes its files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from bilm.errors import BilmError

DRIVER = Path("/proc/driver/nvidia/version")  # Linux's, where NVIDIA's driver is loaded


class Devices:
    """The replicas that a run computes on.

    Args:
        strategy: from `make_strategy`; None takes all GPUs, or the CPU.
    Attributes: `strategy`; `n_replicas`, how many there are; `names`, such as `CPU:0`, one per
        replica of this process.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None = None):
        self.strategy = strategy or make_strategy()
        self.n_replicas = self.strategy.num_replicas_in_sync
        workers = self.strategy.extended.worker_devices
        self.names = [name.split("device:")[-1] for name in workers]

    def __str__(self) -> str:
        return ", ".join(self.names)

    @property
    def on_cpu(self) -> bool:
        """Whether all replicas share this machine's memory."""
        return all(name.startswith("CPU") for name in self.names)

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run's files: one of them does, the only one or not."""
        return self.strategy.extended.should_checkpoint

    def local(self, value: Any) -> tuple:
        """Return the parts that this process's replicas hold of a distributed value."""
        return self.strategy.experimental_local_results(value)

    def run_everywhere(self, make):
        """Call `make` on every replica, compiled; return the distributed result."""
        return self.strategy.run(tf.function(make, autograph=False))


def make_strategy(
    gpus: Sequence[int] | None = None,
    n_gpus: int | None = None,
    cpu_replicas: int = 1,
    tf32: bool = True,
) -> tf.distribute.MirroredStrategy:
    """Choose the devices: GPUs by number, the first `n_gpus`, all of them, or the CPU.

    The other GPUs are hidden from this process, so that TensorFlow takes none of their memory; it
    cannot do that any more once it has started.

    Args:
        gpus: numbers of the GPUs to use.
        n_gpus: how many to use; 0 is the CPU.
        cpu_replicas: how many logical CPU devices share the CPU where no GPU is used.
        tf32: whether GPUs of compute capability 8 or more may round the operands of float32
            products to TF32, of 10 bits after the first, as TensorFlow has them do; False turns
            that off for this process.
    Raises: BilmError if more are requested than exist, or hidden ones.
    """
    found = tf.config.list_physical_devices("GPU")
    if gpus is None:
        gpus = range(len(found) if n_gpus is None else n_gpus)
        if n_gpus is None and not found:
            _warn_of_driver()
    missing = [k for k in gpus if k >= len(found) or k < 0]
    if missing:
        raise BilmError(f"GPU {missing[0]} was requested, but TensorFlow finds {len(found)} here")
    with suppress(RuntimeError):  # TensorFlow has started
        tf.config.set_visible_devices([found[k] for k in gpus], "GPU")
    if gpus:
        _settle_tf32([found[k] for k in gpus], tf32)
        return tf.distribute.MirroredStrategy(_logical_names(found, gpus))
    if cpu_replicas > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        one = tf.config.LogicalDeviceConfiguration()
        with suppress(RuntimeError):  # TensorFlow has started, with the devices that there are
            tf.config.set_logical_device_configuration(cpu, [one] * cpu_replicas)
    n_cpus = len(tf.config.list_logical_devices("CPU"))
    if cpu_replicas > n_cpus:
        raise BilmError(
            f"{cpu_replicas} CPU replicas were requested, but TensorFlow has started with {n_cpus}"
        )
    return tf.distribute.MirroredStrategy([f"CPU:{k}" for k in range(cpu_replicas)])


def _logical_names(found: Sequence, gpus: Sequence[int]) -> list[str]:
    """Return the names under which TensorFlow computes on GPUs: it counts the visible ones."""
    visible = tf.config.get_visible_devices("GPU")
    hidden = [k for k in gpus if found[k] not in visible]
    if hidden:
        raise BilmError(
            f"GPU {hidden[0]} was requested, but TensorFlow has started in this process without it"
        )
    return [f"GPU:{visible.index(found[k])}" for k in gpus]


def _settle_tf32(devices: Sequence, tf32: bool) -> None:
    if not tf32:
        tf.config.experimental.enable_tensor_float_32_execution(False)
    elif tf.config.experimental.tensor_float_32_execution_enabled() and any(
        tf.config.experimental.get_device_details(gpu).get("compute_capability", (0,)) >= (8,)
        for gpu in devices
    ):
        logging.info("float32 products round their operands to TF32 on this GPU (--notf32: not)")


def _warn_of_driver() -> None:
    """TensorFlow without CUDA's libraries finds no GPU, and takes the CPU without a word."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if not hidden and (DRIVER.exists() or shutil.which("nvidia-smi")):
        logging.warning(
            "an NVIDIA driver is here, but TensorFlow finds no GPU and the CPU is used; install "
            "TensorFlow with CUDA: pip install 'tensorflow[and-cuda]' (--n_gpus=0: no warning)"
        )
