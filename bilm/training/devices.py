"""What a run computes on: the replicas of this process, and those of all its workers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from bilm.errors import BilmError, HostError
from bilm.training.cluster import TF_CONFIG
from bilm.training.hosts import Alone, Hosts, signals_kept

DRIVER = Path("/proc/driver/nvidia/version")  # Linux's, where NVIDIA's driver is loaded


class Devices:
    """The replicas that a run computes on.

    Args:
        strategy: from `make_strategy`; None takes all GPUs, or the CPU.
        hosts: the worker processes of the run, for which the strategy was made.
    Attributes: `strategy`; `n_replicas`, how many there are on all workers; `names`, such as
        `CPU:0`, one per replica of this process; `own`, the numbers of these replicas among all;
        `hosts`.
    Raises: BilmError for a strategy of several workers without `hosts`, or of others.
    """

    def __init__(
        self, strategy: tf.distribute.Strategy | None = None, hosts: Hosts | Alone | None = None
    ):
        self.hosts = hosts or Alone()
        self.strategy = strategy or make_strategy(hosts=self.hosts)
        self.n_replicas = self.strategy.num_replicas_in_sync
        workers = self.strategy.extended.worker_devices
        self.names = [name.split("device:")[-1] for name in workers]
        first = self.hosts.index * len(self.names)
        self.own = range(first, first + len(self.names))
        if self.n_replicas != self.hosts.n_workers * len(self.names):
            raise BilmError(
                f"the strategy has {self.n_replicas} replicas, {len(self.names)} of them here, but "
                f"hosts has {self.hosts.n_workers} workers; make both as bilm.training.hosts says"
            )

    def __str__(self) -> str:
        return ", ".join(self.names)

    @property
    def on_cpu(self) -> bool:
        """Whether all replicas share this machine's memory."""
        return all(name.startswith("CPU") for name in self.names)

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run's files: one of them does, the only one or not."""
        return self.hosts.is_chief

    @property
    def several_hosts(self) -> bool:
        """Whether other processes hold replicas too."""
        return self.hosts.n_workers > 1

    def local(self, value: Any) -> tuple:
        """Return the parts that this process's replicas hold of a distributed value."""
        return self.strategy.experimental_local_results(value)

    def gathered(self, value: Any) -> tf.Tensor:
        """Return the rows of all replicas, in a graph, of a value with some rows on each."""
        if self.several_hosts:
            return self.strategy.gather(value, axis=0)
        return tf.concat(self.local(value), axis=0)

    def summed_slices(self, slices: Any, common: Any = None) -> tf.IndexedSlices:
        """Return the sum of all replicas' `tf.IndexedSlices`, in a graph; each row occurs once.

        A replica sums its own first: what workers exchange is each row once per replica.

        Args:
            slices: of each replica.
            common: distinct indices (N,), the same on all replicas: the values of these rows are
                reduced, all others gathered. None if no such rows are known.
        """
        run = self.strategy.run
        if self.n_replicas == 1 or common is None:
            # As two tensors: `tf.distribute.Strategy.gather` takes no IndexedSlices.
            parts = run(lambda own: _sum_rows(own.indices, own.values), args=(slices,))
            rows, values = map(self.gathered, parts)
        else:
            *parts, ids, sums = run(_split_rows, args=(slices, common))
            rows, values = map(self.gathered, parts)
            sums = self.strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)
            rows, values = tf.concat([self.local(ids)[0], rows], 0), tf.concat([sums, values], 0)
        if self.n_replicas > 1:
            rows, values = _sum_rows(rows, values)
        return tf.IndexedSlices(values, rows)

    def run_everywhere(self, make: Any) -> Any:
        """Call `make` on every replica, compiled; return the distributed result."""
        return self.strategy.run(tf.function(make, autograph=False))


def _sum_rows(indices: tf.Tensor, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the distinct indices and the sum of each one's values."""
    rows, places = tf.unique(indices)
    return rows, tf.math.unsorted_segment_sum(values, places, tf.size(rows))


def _split_rows(slices: tf.IndexedSlices, common: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Sum the rows; return the others, their values, the common indices and their values."""
    common = tf.cast(common, slices.indices.dtype)
    absent = tf.zeros([tf.size(common), *slices.values.shape[1:]], slices.values.dtype)
    rows, values = _sum_rows(
        tf.concat([common, slices.indices], 0), tf.concat([absent, slices.values], 0)
    )
    n = tf.size(common)
    # A row of zeros stays with the others: TensorFlow's collective gather of no rows at all ends
    # the process.
    others = tf.concat([absent[:1], values[n:]], 0)
    return rows[n - 1 :], others, common, values[:n]


def make_strategy(
    gpus: Sequence[int] | None = None,
    n_gpus: int | None = None,
    cpu_replicas: int = 1,
    tf32: bool = True,
    hosts: Hosts | Alone | None = None,
) -> tf.distribute.Strategy:
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
        hosts: the worker processes, each of which calls this; None for a run of one process.
    Raises: BilmError if more are requested than exist, or hidden ones, or if workers differ in
        how many they have.
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
    if hosts is not None and hosts.n_workers > 1:
        return _strategy_of(hosts, len(gpus), cpu_replicas)
    if gpus:
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


def _strategy_of(hosts: Hosts, n_gpus: int, cpu_replicas: int) -> tf.distribute.Strategy:
    """Return the strategy of all workers, each of which has the same number of visible GPUs."""
    if cpu_replicas > 1:
        raise BilmError(
            f"{cpu_replicas} CPU replicas were requested, but TensorFlow has one per worker on a "
            "host without GPUs; start more workers"
        )
    numbers = hosts.gather("number of GPUs", n_gpus)
    other = next((k for k, number in enumerate(numbers) if number != numbers[0]), None)
    if other is not None:
        raise HostError(
            f"{hosts.name(other)}: has {numbers[other]} GPUs, but {hosts.name(0)} has "
            f"{numbers[0]}; expected the same number on all hosts (--n_gpus, --gpus)"
        )
    os.environ[TF_CONFIG] = hosts.cluster.tf_config()
    try:
        with signals_kept():
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:  # TensorFlow has started
        raise BilmError(
            f"{hosts.name(hosts.index)}: {error}; make the strategy before TensorFlow "
            "computes anything"
        ) from error
    hosts.exchanging = True
    return strategy


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
