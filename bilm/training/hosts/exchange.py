"""Messages between the worker processes of a run, and how all end when one of them does.

TensorFlow exchanges gradients. Decisions between steps use the connections that `joining` opened:
whether to stop, when to save, which checkpoint the chief has found.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any

import tensorflow as tf

from bilm.errors import HostError
from bilm.training.hosts.joining import BROKEN, Cluster, join, receive, send

END = "end"  # `what` of the last `gather`, at the end of the `with` block
NEWS_SECONDS = 5.0  # time limit, after a failed exchange, to learn which worker has failed
EXCHANGE_ERRORS = (tf.errors.OpError, RuntimeError)  # TensorFlow's, if another worker is lost
ENDED = (
    "ended without a message: it was killed, or its host or network is down. The last checkpoint "
    "remains; the same command on all hosts resumes the run"
)


class Hosts:
    """The worker processes of a run; each process creates one `Hosts`, also if it is alone.

    Use it as a context manager: each worker waits at the end of the block until all have reached
    it. If a worker leaves the block with an error or dies, the processes of all others end with
    status 1 and one line that names it, because they may wait in an exchange of gradients.

    All workers must call the methods in the same order, with the same `what`. Values are JSON.

    Args:
        cluster: the workers, and which one this is; None for a run of one process.
        minutes: how long to wait for the others to join.
    Attributes: `cluster`; `n_workers`; `index`; `is_chief`; `name`, see `Cluster`.
    Raises: HostError if a worker does not join, or runs another program.

    Example:
        with Hosts(find_cluster()) as hosts:
            strategy = make_strategy(hosts=hosts)
            bilm.train(..., devices=Devices(strategy, hosts))
    """

    def __init__(self, cluster: Cluster | None = None, minutes: float = 10.0):
        self.cluster = cluster or Cluster(("this process",), 0)
        self.index = self.cluster.index
        self.n_workers = len(self.cluster.workers)
        self.is_chief = self.index == 0
        self.name = self.cluster.name
        self._connections = join(cluster, minutes) if cluster else {}
        self._received = {k: queue.SimpleQueue[Any]() for k in self._connections}
        self._sending = threading.Lock()
        self._over = False  # whether this worker has left the block with an error
        if cluster:
            threading.Thread(target=self._listen, daemon=True, name="bilm-hosts").start()

    def gather(self, what: str, value: Any) -> list[Any]:
        """Return the value of each worker, the chief's first."""
        if not self.is_chief:
            self._send({"what": what, "value": value})
            return self._next(0, what)
        values = [value, *(self._next(k, what) for k in range(1, self.n_workers))]
        self._send({"what": what, "value": values})
        return values

    def from_chief(self, what: str, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, which only the chief calls."""
        return self.gather(what, make() if self.is_chief else None)[0]

    def check_alike(self, what: str, make: Callable[[], Mapping[str, Any]]) -> None:
        """Raise HostError on all workers if a value that `make` returns by name differs between
        them."""
        if self.n_workers == 1:
            return
        first, *others = self.gather(what, _flat(make()))
        for k, other in enumerate(others, start=1):
            for name in first | other:
                if first.get(name) != other.get(name):
                    raise HostError(
                        f"{self.name(k)}: {name} is {other.get(name)}, but {first.get(name)} on "
                        f"{self.name(0)}; expected the same on all hosts"
                    )

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        if error is None:
            self.gather(END, None)
        elif self.n_workers > 1:
            if isinstance(error, EXCHANGE_ERRORS):
                time.sleep(NEWS_SECONDS)  # if another worker was lost, this process ends here
            self._over = True
            stopped = isinstance(error, KeyboardInterrupt)
            line = "interrupted" if stopped else " ".join(str(error).split()) or repr(error)
            self._send({"failed": f"{self.name(self.index)} has ended: {line}"})

    def _next(self, worker: int, what: str) -> Any:
        """Return the next value from a worker; its `what` must be the same."""
        message = self._received[worker].get()
        if message["what"] != what:
            raise HostError(
                f"{self.name(worker)} is at '{message['what']}', and {self.name(self.index)} at "
                f"'{what}'; expected the same program on all"
            )
        return message["value"]

    def _send(self, message: dict[str, Any]) -> None:
        """Send to the chief, or from it to all others; `_listen` notices those that have died."""
        for connection in self._connections.values():
            with self._sending, suppress(OSError):
                send(connection, message)

    def _listen(self) -> None:
        """Receive what the others send, until all have reached the end or one fails."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        workers = {connection: k for k, connection in self._connections.items()}
        while workers:
            ready = wait(list(workers))
            for connection in [c for c in workers if c in ready]:
                k = workers[connection]
                try:
                    message = receive(connection)
                except BROKEN:
                    message = {"failed": f"{self.name(k)} {ENDED}"}
                if "failed" in message and not self._over:
                    self._send(message)
                    os.write(2, f"error: {message['failed']}\n".encode())
                    os._exit(1)
                self._received[k].put(message)
                if message.get("what") in (END, None):
                    del workers[connection]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested objects by their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
