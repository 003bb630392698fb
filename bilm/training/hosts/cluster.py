"""Which worker processes a run has, and which of them this one is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bilm.errors import OptionsError

TF_CONFIG = "TF_CONFIG"  # the environment variable that TensorFlow reads
MAX_DIGITS = 20  # of a port, including leading zeros
EXAMPLE = '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'


@dataclass(frozen=True)
class Cluster:
    """The worker processes of a run.

    Args:
        workers: `host:port` of each. The first is the chief, which writes the run's files.
        index: number of this process among them.
    """

    workers: tuple[str, ...]
    index: int

    def name(self, index: int) -> str:
        """Return the name of a worker in messages."""
        return f"worker {index} ({self.workers[index]})"

    def address(self, index: int) -> tuple[str, int]:
        """Return the host and the port of a worker."""
        host, _, port = self.workers[index].rpartition(":")
        return host.strip("[]"), int(port)

    def tf_config(self) -> str:
        """Return the cluster as TensorFlow reads it from TF_CONFIG."""
        task = {"type": "worker", "index": self.index}
        return json.dumps({"cluster": {"worker": self.workers}, "task": task})


def find_cluster(
    workers: Sequence[str] | None = None,
    index: int | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Cluster | None:
    """Return the cluster that the arguments or TF_CONFIG describe; None for a single process.

    Args:
        workers: `host:port` of each worker process, the same on all of them; None for TF_CONFIG.
        index: the place of this process among them.
        environment: where TF_CONFIG is looked for.
    Raises: OptionsError, naming the flag or the key.
    """
    text = environment.get(TF_CONFIG, "").strip()
    if workers is None and index is None:
        return _checked(*_read_config(text), f"{TF_CONFIG}: ") if text else None
    if workers is None or index is None:
        raise OptionsError("--workers and --worker_index: expected both or neither")
    return _checked(list(workers), index, "--workers: ")


def _read_config(text: str) -> tuple[list[str], int]:
    """Return the addresses in TF_CONFIG, the chief's first, and the place of this process."""
    try:
        config = json.loads(text)
        jobs, task = config.get("cluster") or {}, config.get("task") or {}
        others = sorted(set(jobs) - {"chief", "worker"})
        kind, index = task.get("type", "worker"), task.get("index", 0)
        if isinstance(index, str):
            index = int(index)
        if type(index) is not int or not isinstance(kind, str):
            raise ValueError(f"found the task {str(task)[:80]}")
        chiefs, workers = list(jobs.get("chief", [])), list(jobs.get("worker", []))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise OptionsError(f"{TF_CONFIG}: {reason}; expected JSON such as {EXAMPLE}") from None
    if others:
        raise OptionsError(
            f"{TF_CONFIG}: the cluster has the job {others[0]}; expected chief and worker alone"
        )
    if not (chiefs or workers):
        return [], 0
    if kind not in jobs or index < 0 or index >= len(jobs[kind]):
        raise OptionsError(
            f"{TF_CONFIG}: task {index} of the job {kind} is not in the cluster; expected a task "
            "that it lists"
        )
    return chiefs + workers, index + (len(chiefs) if kind == "worker" else 0)


def _checked(workers: list[Any], index: int, where: str) -> Cluster | None:
    """Return the cluster if each address can be one. One process alone needs none."""
    for address in workers:
        host, _, port = str(address).strip().rpartition(":")
        # The length, because `int` refuses very long numbers.
        if not (host and port.isdecimal() and len(port) <= MAX_DIGITS and 0 < int(port) < 65_536):
            raise OptionsError(f"{where}found {repr(address)[:80]}, expected host:port")
    addresses = tuple(str(address).strip() for address in workers)
    twice = next((a for a in addresses if addresses.count(a) > 1), None)
    if twice is not None:
        raise OptionsError(f"{where}{twice} is given twice; each worker needs its own host or port")
    if addresses and not 0 <= index < len(addresses):
        raise OptionsError(
            f"{where}worker {index} was requested of {len(addresses)}; expected 0 to "
            f"{len(addresses) - 1}"
        )
    return Cluster(addresses, index) if len(addresses) > 1 else None
