"""Devices of a run: the replicas of this process and of all its workers."""

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import (
    CollectiveAllReduceExtended,
)
from tensorflow.python.eager import context  # TensorFlow has no public names for these

import bilm
from bilm.errors import BilmError
from bilm.options.run_options import RunOptions
from bilm.precisions import PRECISIONS
from bilm.support.process import grow_gpu_memory
from bilm.tensors import N_GATES
from bilm.training.hosts import TF_CONFIG, Hosts

CPU_INFO = Path("/proc/cpuinfo")
# Where bfloat16 products are 1.6 to 2.8 times as fast, a training step is 1.4 times as fast.
LEAST_GAIN = 1.5

Batches = tuple[Any, ...]  # one nest of tensors per replica of this process


class Devices:
    """The replicas that a run computes on, by a `strategy` of `make_strategy` with these `hosts`;
    by default all GPUs, or the CPU.

    Attributes: `n_replicas` on all workers; `names`, such as `CPU:0`, one per replica of this
        process; `own`, the numbers of these replicas among all.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None = None, hosts: Hosts | None = None):
        self.hosts = hosts or Hosts()
        self.strategy = strategy or make_strategy(hosts=self.hosts)
        self.n_replicas = self.strategy.num_replicas_in_sync
        workers = self.strategy.extended.worker_devices
        self.names = [name.split("device:")[-1] for name in workers]
        first = self.hosts.index * len(self.names)
        self.own = range(first, first + len(self.names))

    def __str__(self) -> str:
        return ", ".join(self.names)

    @property
    def several_hosts(self) -> bool:
        """Whether other processes have replicas too."""
        return self.hosts.n_workers > 1

    def local(self, value: Any) -> tuple:
        """Return the parts of a distributed value on this process's replicas."""
        return self.strategy.experimental_local_results(value)

    def place(self, values: Sequence[Any]) -> Batches:
        """Copy a nest of arrays for each replica of this process to the replica's device."""
        placed = []
        workers = self.strategy.extended.worker_devices
        for worker, value in zip(workers, values, strict=True):
            with tf.device(worker):
                placed.append(tf.nest.map_structure(tf.convert_to_tensor, value))
        return tuple(placed)

    def distributed(self, values: Batches) -> Any:
        """Return one distributed nest of the replicas' nests; call it in a graph."""
        return self.strategy.experimental_distribute_values_from_function(
            lambda replica: values[replica.replica_id_in_sync_group - self.own.start]
        )

    def gathered(self, value: Any) -> tf.Tensor:
        """Concatenate the rows of a distributed value over all replicas; call it in a graph."""
        if self.several_hosts:
            return self.strategy.gather(value, axis=0)
        return tf.concat(self.local(value), axis=0)

    def summed_slices(self, slices: Any) -> tf.IndexedSlices:
        """Return the sum of all replicas' `tf.IndexedSlices`, in a graph; each row occurs once.

        Each replica first sums its own slices, so that workers exchange each row only once per
        replica. `tf.distribute.Strategy.gather` does not support IndexedSlices.
        """
        rows, values = self.strategy.run(
            lambda of_replica: _sum_rows(of_replica.indices, of_replica.values), args=(slices,)
        )
        rows = self.gathered(rows)
        values = self.gathered(values)
        if self.n_replicas > 1:
            rows, values = _sum_rows(rows, values)
        return tf.IndexedSlices(values, rows)


def _sum_rows(indices: tf.Tensor, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the distinct indices and the sum of each one's values."""
    rows, places = tf.unique(indices)
    return rows, tf.math.unsorted_segment_sum(values, places, tf.size(rows))


def make_strategy(
    gpus: Sequence[int] | None = None,
    n_gpus: int | None = None,
    cpu_replicas: int = 1,
    hosts: Hosts | None = None,
) -> tf.distribute.Strategy:
    """Choose the GPUs with the numbers `gpus`, the first `n_gpus`, or all of them. Without GPUs, or
    with 0 as `n_gpus`, choose the CPU, as `cpu_replicas` logical devices.

    Unless TensorFlow has started, the other GPUs are hidden from this process, and TensorFlow
    allocates the memory of the chosen ones as it needs it, so that processes can share a GPU.

    `hosts`: the worker processes, which must all call this; None for a run of one process.
    Raises: BilmError if a requested GPU is missing or hidden, or if workers have different numbers
        of GPUs.
    """
    existing = tf.config.list_physical_devices("GPU")
    if gpus is None:
        gpus = range(len(existing) if n_gpus is None else n_gpus)
    for number in gpus:
        if not 0 <= number < len(existing):
            raise BilmError(
                f"GPU {number} was requested, but TensorFlow finds {len(existing)} GPUs on this "
                "host; indices start at 0"
            )
    chosen = [existing[number] for number in gpus]

    with suppress(RuntimeError):  # TensorFlow has started
        tf.config.set_visible_devices(chosen, "GPU")
    if chosen:
        grow_gpu_memory()
    if hosts is not None and hosts.n_workers > 1:
        return _strategy_of(hosts, len(chosen))
    if chosen:
        visible = tf.config.get_visible_devices("GPU")  # TensorFlow numbers only these
        return tf.distribute.MirroredStrategy([f"GPU:{visible.index(gpu)}" for gpu in chosen])
    if cpu_replicas > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        one = tf.config.LogicalDeviceConfiguration()
        with suppress(RuntimeError):  # TensorFlow has started
            tf.config.set_logical_device_configuration(cpu, [one] * cpu_replicas)
    n_cpus = len(tf.config.list_logical_devices("CPU"))
    if cpu_replicas > n_cpus:
        raise BilmError(
            f"{cpu_replicas} CPU replicas were requested, but TensorFlow has started with {n_cpus}"
        )
    return tf.distribute.MirroredStrategy([f"CPU:{k}" for k in range(cpu_replicas)])


def _strategy_of(hosts: Hosts, n_gpus: int) -> tf.distribute.Strategy:
    """Return the strategy of all workers, which must have equal numbers of visible GPUs."""
    about = {"bilm": bilm.__version__, "TensorFlow": tf.__version__, "the number of GPUs": n_gpus}
    about["the list of workers"] = list(hosts.cluster.workers)
    hosts.check_alike("devices", lambda: about)
    os.environ[TF_CONFIG] = hosts.cluster.tf_config()
    try:
        # `Hosts` detects workers that end. TensorFlow's coordination service is disabled,
        # because it would end a run if a worker is paused for ten seconds, and because it replaces
        # the process's SIGTERM handler while threads that could receive the signal are running.
        context.context().configure_coordination_service(service_type="")
        CollectiveAllReduceExtended._enable_check_health = False
        return tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:  # TensorFlow has started
        raise BilmError(
            f"{hosts.name(hosts.index)}: {error}; create the strategy before TensorFlow "
            "computes anything"
        ) from error


def fastest_precision(devices: Devices, options: RunOptions) -> str:
    """Return "bfloat16" if the devices have instructions for it and multiply the inputs of an LSTM
    with its kernel at least `LEAST_GAIN` times as fast as in float32, else "float32"."""
    if not has_bfloat16(devices):
        return "float32"
    float32, bfloat16 = (product_seconds(devices, options, name) for name in PRECISIONS)
    return "bfloat16" if float32 >= LEAST_GAIN * bfloat16 else "float32"


def product_seconds(devices: Devices, options: RunOptions, precision: str) -> float:
    """Return the least time of multiplying the inputs of an LSTM in a window with its kernel:
    other programs can only lengthen it."""
    n_rows = options.batch_size * options.unroll_steps
    n_inputs = 2 * options.lstm.projection_dim
    seconds = []
    with tf.device(devices.names[0]):
        inputs = tf.ones((n_rows, n_inputs), precision)
        kernel = tf.ones((n_inputs, N_GATES * options.lstm.dim), precision)
        for _ in range(11):
            start = time.perf_counter()
            tf.matmul(inputs, kernel)[0, 0].numpy()  # waits for the device
            seconds.append(time.perf_counter() - start)
    return min(seconds)


def has_bfloat16(devices: Devices) -> bool:
    """Return whether the devices have instructions for bfloat16, which is very slow without."""
    if devices.names[0].startswith("CPU"):
        flags = CPU_INFO.read_text() if CPU_INFO.exists() else ""
        return bool(re.search(r"\b(avx512_bf16|amx_bf16)\b", flags))
    for gpu in tf.config.get_visible_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        generation, *_ = details.get("compute_capability", (0,))
        if generation < 8:
            return False
    return True
