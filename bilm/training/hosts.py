"""The worker processes of a run: what they agree on, and how all end when one of them does.

TensorFlow exchanges gradients. What is decided between steps goes over the connections that
`joining` opened: whether to stop, when to save, what the chief has found on its disk.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context  # TensorFlow has no public name for aborting

from bilm.errors import HostError
from bilm.training.cluster import Cluster
from bilm.training.joining import join, receive, send

END_SECONDS = 30.0  # how long a worker may take to end once another one has failed
END = "end"  # what the workers agree on last
WORD_SECONDS = 5.0  # how long an error of TensorFlow's waits for the news of the worker behind it
EXCHANGE_ERRORS = (tf.errors.OpError, RuntimeError)  # what TensorFlow raises as it is aborted
ENDED = (
    "ended without a word: it was killed, or its host or network is down. The last checkpoint "
    "stands; the same command on all hosts continues the run"
)


class Alone:
    """A run of one process: it agrees with itself. `Hosts` has the same methods."""

    n_workers, index, is_chief = 1, 0, True

    def gather(self, what: str, value: Any) -> list[Any]:
        """Return the value of each worker, the chief's first."""
        return [value]

    def name(self, index: int) -> str:
        """Return what errors call a worker."""
        return "this process"

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *_: object) -> None:
        """Nobody waits."""


class Hosts:
    """All worker processes of a run; each of them makes one of these.

    Use it as a context manager: a worker that leaves the block with an error tells the others,
    which then raise `HostError` in theirs; without one, all wait for the last.

    All workers must call the methods in the same order, with the same `what`. Values are JSON.

    Args:
        cluster: the workers, and which one this is.
        minutes: how long to wait for the others to join.
    Attributes: `n_workers`, `index`, `is_chief`; `exchanging`, whether TensorFlow has connected
        the workers, which `make_strategy` sets.
    Raises: HostError, here if a worker does not join, and in each method if another has failed.

    Example:
        with Hosts(find_cluster()) as hosts:
            strategy = make_strategy(hosts=hosts)
            bilm.TrainingRun(..., strategy=strategy, hosts=hosts).train()
    """

    def __init__(self, cluster: Cluster, minutes: float = 10.0):
        self.cluster, self.index = cluster, cluster.index
        self.n_workers, self.is_chief = len(cluster.workers), cluster.index == 0
        self._connections: dict[int, Connection] = join(cluster, minutes)
        self._received: dict[int, queue.SimpleQueue] = {
            k: queue.SimpleQueue() for k in self._connections
        }
        self.failure: HostError | None = None
        self.exchanging = False
        self._failed, self._over = threading.Event(), threading.Event()
        self._sending = threading.Lock()
        threading.Thread(target=self._listen, daemon=True, name="bilm-hosts").start()

    # --- what they agree on ---

    def gather(self, what: str, value: Any) -> list[Any]:
        """Return the value of each worker, the chief's first."""
        if not self.is_chief:
            self._send(0, {"what": what, "value": value})
            return self._next(0, what)
        value = json.loads(json.dumps(value))  # as the others see it
        values = [value, *(self._next(k, what) for k in range(1, self.n_workers))]
        for k in self._connections:
            self._send(k, {"what": what, "value": values})
        return values

    def name(self, index: int) -> str:
        """Return what errors call a worker."""
        return self.cluster.name(index)

    # --- how they end ---

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        try:
            if error is None:
                self.gather(END, None)
                return
            if isinstance(error, EXCHANGE_ERRORS) and self._failed.wait(WORD_SECONDS):
                raise self.failure from None
            if error is not self.failure:
                stopped = isinstance(error, KeyboardInterrupt)
                line = "interrupted" if stopped else " ".join(str(error).split()) or repr(error)
                self._tell(f"{self.name(self.index)} has ended: {line}")
        finally:
            self._over.set()

    def _tell(self, line: str) -> None:
        """Have the others end with a line. One that is gone is told nothing."""
        for connection in self._connections.values():
            with self._sending, suppress(OSError):
                send(connection, {"failed": line})

    def _next(self, worker: int, what: str) -> Any:
        """Return the next value from a worker, in its turn."""
        message = self._received[worker].get()
        if message is None:
            raise self.failure
        if message["what"] != what:
            raise HostError(
                f"{self.name(worker)} is at '{message['what']}', and "
                f"{self.name(self.index)} at '{what}'; expected the same program on all"
            )
        return message["value"]

    def _send(self, worker: int, message: Any) -> None:
        with self._sending:
            try:
                send(self._connections[worker], message)
            except OSError:
                # The thread that listens finds out why, and says so to `_next`.
                if not self._failed.wait(WORD_SECONDS):
                    raise

    def _listen(self) -> None:
        """Receive what the others send, until all have ended or one has failed."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
        workers = {connection: k for k, connection in self._connections.items()}
        while workers:
            for connection in wait(list(workers)):
                k = workers[connection]
                try:
                    message = receive(connection)
                except (OSError, EOFError, ValueError):
                    message = {"failed": f"{self.name(k)} {ENDED}"}
                if "failed" in message:
                    self._fail(k, message["failed"])
                    return
                self._received[k].put(message)
                if message["what"] == END:
                    del workers[connection]

    def _fail(self, worker: int, line: str) -> None:
        """Have this worker end, and the others if this is the chief."""
        self.failure = HostError(line)
        self._failed.set()
        self._tell(line)
        for waiting in self._received.values():
            waiting.put(None)
        if self.exchanging:
            # The exchange of gradients may wait for a worker that is gone.
            context.context().abort_collective_ops(tf.errors.ABORTED, line)
        if not self._over.wait(END_SECONDS):
            os.write(2, f"error: {line}\n".encode())
            os._exit(1)


@contextmanager
def signals_kept() -> Iterator[None]:
    """Keep SIGTERM's handler through a block in which TensorFlow installs one of its own.

    A signal that comes during the block is delivered after it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    number = signal.SIGTERM
    before, handler = signal.pthread_sigmask(signal.SIG_BLOCK, [number]), signal.getsignal(number)
    try:
        yield
    finally:
        if handler is not None:
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
