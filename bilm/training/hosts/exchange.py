"""Messages between the worker processes of a run, and how all end when one of them does.

TensorFlow exchanges gradients. Decisions between steps use the connections that `joining` opened:
whether to stop, when to save, which checkpoint the chief has found.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context  # TensorFlow has no public name for aborting

from bilm.errors import HostError
from bilm.training.hosts.cluster import Cluster
from bilm.training.hosts.joining import encode, join, receive, send

ALIVE, ALIVE_SECONDS = {"alive": True}, 5.0  # what each worker sends, and how often
SILENT_SECONDS = 30.0  # a worker that sends nothing for so long is considered lost
# A turn of the listening thread takes at most ALIVE_SECONDS unless this process was suspended. A
# shorter suspension does not make the others seem lost.
SUSPENDED_SECONDS = SILENT_SECONDS / 2
END_SECONDS = 30.0  # how long a worker may take to end once another one has failed
END = "end"  # `what` of the last `gather`, at the end of the `with` block
NEWS_SECONDS = 5.0  # time limit, after a failed exchange, to learn which worker has failed
EXCHANGE_ERRORS = (tf.errors.OpError, RuntimeError)  # raised by TensorFlow when it is aborted
LOST_ERRORS = (  # raised by TensorFlow if another worker does not take part
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.UnavailableError,
)
CONTINUE = "The last checkpoint remains; the same command on all hosts resumes the run"
ENDED = f"ended without a message: it was killed, or its host or network is down. {CONTINUE}"
SILENT = f"did not answer for {SILENT_SECONDS:g} seconds: its process is suspended. {CONTINUE}"


class Alone:
    """A run of one process. `Hosts` has the same methods."""

    n_workers, index, is_chief = 1, 0, True

    def gather(self, what: str, value: Any) -> list[Any]:
        """Return the value of each worker, the chief's first."""
        return [value]

    def from_chief(self, what: str, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, which only the chief calls."""
        return make()

    def name(self, index: int) -> str:
        """Return the name of a worker in messages."""
        return "this process"

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: no other process waits."""


class Hosts:
    """The worker processes of a run; each process creates one `Hosts`.

    Use it as a context manager: if a worker leaves the block with an error, the others raise
    `HostError`; otherwise each worker waits at the end of the block until all have reached it.

    All workers must call the methods in the same order, with the same `what`. Values are JSON.

    Args:
        cluster: the workers, and which one this is.
        minutes: how long to wait for the others to join.
    Attributes: `n_workers`, `index`, `is_chief`; `exchanging`, set by `make_strategy`: whether
        TensorFlow has connected the workers.
    Raises: HostError, here if a worker does not join, and in each method if another one fails.

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
        self.failure = HostError("another worker has ended")  # the listening thread says which
        self.exchanging = False
        self._failed, self._over = threading.Event(), threading.Event()
        self._sending = threading.Lock()
        threading.Thread(target=self._listen, daemon=True, name="bilm-hosts").start()

    # --- exchanging values ---

    def gather(self, what: str, value: Any) -> list[Any]:
        """Return the value of each worker, the chief's first."""
        if not self.is_chief:
            self._send(0, {"what": what, "value": value})
            return self._next(0, what)
        value = json.loads(encode(value))  # as the others see it
        values = [value, *(self._next(k, what) for k in range(1, self.n_workers))]
        for k in self._connections:
            self._send(k, {"what": what, "value": values})
        return values

    def from_chief(self, what: str, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, which only the chief calls."""
        return self.gather(what, make() if self.is_chief else None)[0]

    def name(self, index: int) -> str:
        """Return the name of a worker in messages."""
        return self.cluster.name(index)

    # --- ending ---

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        try:
            if error is None:
                self.gather(END, None)
                return
            if isinstance(error, EXCHANGE_ERRORS) and self._failed.wait(NEWS_SECONDS):
                raise self.failure from None
            if error is self.failure:
                return
            if isinstance(error, LOST_ERRORS):
                line = self._lost(error)
                self._tell(line)
                raise HostError(line) from None
            stopped = isinstance(error, KeyboardInterrupt)
            line = "interrupted" if stopped else " ".join(str(error).split()) or repr(error)
            self._tell(f"{self.name(self.index)} has ended: {line}")
        finally:
            self._over.set()

    def _lost(self, error: tf.errors.OpError) -> str:
        """Return an error message that names the workers that a TensorFlow error mentions."""
        tasks = {int(k) for k in re.findall(r"/task:(\d+)", error.message)} - {self.index}
        others = [self.name(k) for k in sorted(tasks) if k < self.n_workers]
        reason = next(iter(error.message.splitlines()), type(error).__name__)
        return (
            f"{', '.join(others) or 'another worker'}: {self.name(self.index)} cannot exchange "
            f"gradients with it ({reason}). {CONTINUE}"
        )

    def _tell(self, line: str) -> None:
        """Send an error message to the other workers, which then end; ignore those that have
        already ended."""
        for connection in self._connections.values():
            with self._sending, suppress(OSError):
                send(connection, {"failed": line})

    def _next(self, worker: int, what: str) -> Any:
        """Return the next value from a worker; its `what` must be the same."""
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
                # The listening thread finds the reason, which `_next` raises.
                if not self._failed.wait(NEWS_SECONDS) and message["what"] != END:
                    raise

    def _listen(self) -> None:
        """Receive what the others send, and send signs of life, until the end or a failure."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
        workers = {connection: k for k, connection in self._connections.items()}
        last = time.monotonic()  # time of the last check for silence
        heard = dict.fromkeys(workers, last)
        told = 0.0
        # After the other workers have sent END, they wait for this one, which may still save or
        # evaluate.
        while workers or not self._over.is_set():
            # Receive before checking for silence: if this process was suspended, messages are
            # waiting.
            ready = wait(list(workers), ALIVE_SECONDS)
            for connection in [c for c in workers if c in ready]:
                k = workers[connection]
                heard[connection] = time.monotonic()
                try:
                    message = receive(connection)
                except (OSError, EOFError, ValueError, RecursionError):
                    message = {"failed": f"{self.name(k)} {ENDED}"}
                if "failed" in message:
                    self._fail(k, message["failed"])
                    return
                if "alive" in message:
                    continue
                self._received[k].put(message)
                if message["what"] == END:
                    del workers[connection]
            now = time.monotonic()
            if now - last > SUSPENDED_SECONDS:
                # This process was suspended, and maybe all of them, such as by the scheduler. The
                # others get as much time as at the start.
                heard = dict.fromkeys(workers, now)
            last = now
            if silent := [c for c in workers if now - heard[c] > SILENT_SECONDS]:
                self._fail(workers[silent[0]], f"{self.name(workers[silent[0]])} {SILENT}")
                return
            if now - told >= ALIVE_SECONDS:
                told = now
                for connection in self._connections.values():
                    with self._sending, suppress(OSError):  # the next receive detects it
                        send(connection, ALIVE)

    def _fail(self, worker: int, line: str) -> None:
        """Make this worker end, and the others if this is the chief."""
        self.failure = HostError(line)
        self._failed.set()
        self._tell(line)
        for waiting in self._received.values():
            waiting.put(None)
        if self.exchanging:
            # The exchange of gradients may wait for a worker that is lost.
            context.context().abort_collective_ops(tf.errors.ABORTED, line)
        if not self._over.wait(END_SECONDS):
            os.write(2, f"error: {line}\n".encode())
            os._exit(1)
