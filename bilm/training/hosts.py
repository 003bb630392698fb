"""The worker processes of a run: how they find each other, exchange messages and end together.

The chief listens at the port of its address. Each of the other workers connects to it and sends its
index. When all have joined, the chief answers, and TensorFlow then listens at the same port and
exchanges gradients. The connections remain open for decisions, and break if a worker dies.

TensorFlow alone would wait forever for a worker that does not start. It accepts connections on all
interfaces without authentication, so a run with several workers requires a trusted network.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import tensorflow as tf
from absl import logging

from bilm.errors import HostError, OptionsError

ADDRESS = re.compile(r".+:\d{1,5}")  # of a worker
TF_CONFIG = "TF_CONFIG"  # the environment variable that TensorFlow reads
HELLO_SECONDS = 10.0  # limit for the index of a new connection
RETRY_SECONDS = 0.5  # between attempts to reach the chief
MAX_BYTES = 1 << 26  # maximum size of a message
# If a host loses power or network, TCP closes the connection after about 30 s.
KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}
BROKEN = (OSError, EOFError, ValueError)  # raised by `receive`
END = "end"  # `what` of the last `gather`, at the end of the `with` block
NEWS_SECONDS = 5.0  # time limit, after a failed exchange, to learn which worker has failed
EXCHANGE_ERRORS = (tf.errors.OpError, RuntimeError)  # TensorFlow's, if another worker is lost
ENDED = (
    "ended without a message: it was killed, or its host or network is down. The last checkpoint "
    "remains; the same command on all hosts resumes the run"
)


@dataclass(frozen=True)
class Cluster:
    """The worker processes of a run: `host:port` of each, the chief first, which writes the run's
    files, and the place of this process among them."""

    workers: tuple[str, ...]
    index: int

    def name(self, index: int) -> str:
        """Return how messages name a worker."""
        return f"worker {index} ({self.workers[index]})"

    def address(self, index: int) -> tuple[str, int]:
        """Return the host and the port of a worker."""
        host, _, port = self.workers[index].rpartition(":")
        return host.strip("[]"), int(port)

    def tf_config(self) -> str:
        """Return the cluster as TensorFlow reads it from TF_CONFIG."""
        task = {"type": "worker", "index": self.index}
        return json.dumps({"cluster": {"worker": self.workers}, "task": task})


def find_cluster(workers: Sequence[str] | None = None, index: int | None = None) -> Cluster | None:
    """Return the cluster with these `workers`, each `host:port`, and this process at a place, or
    that of TF_CONFIG; None for a single process. Raises: OptionsError."""
    source = "--workers" if workers else TF_CONFIG
    if workers is None and index is None:
        workers, index = _read_config() if os.environ.get(TF_CONFIG) else ([], 0)
    if workers is None or index is None:
        raise OptionsError("--workers and --worker_index: expected both or neither")
    for address in workers:
        if not ADDRESS.fullmatch(address) or workers.count(address) > 1:
            raise OptionsError(f"{source}: found {address!r}, expected host:port, each once")
    if workers and not 0 <= index < len(workers):
        raise OptionsError(f"{source}: found worker {index}, expected 0 to {len(workers) - 1}")
    return Cluster(tuple(workers), index) if len(workers) > 1 else None


def _read_config() -> tuple[list[str], int]:
    """Return the addresses in TF_CONFIG, the chief's first, and the place of this process."""
    try:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        jobs = resolver.cluster_spec().as_dict()
        kind = resolver.task_type or "worker"
        chiefs = jobs.pop("chief", [])
        index = resolver.task_id or 0
        workers = jobs.pop("worker", [])
    except (ValueError, TypeError, AttributeError) as error:
        raise OptionsError(f"{TF_CONFIG}: {error}") from None
    if jobs or kind not in ("chief", "worker"):
        raise OptionsError(f"{TF_CONFIG}: found other jobs, expected chief and worker alone")
    return chiefs + workers, index + (len(chiefs) if kind == "worker" else 0)


class Hosts:
    """The worker processes of a run; each process creates one `Hosts`, also if it is alone.

    Use it as a context manager: each worker waits at the end of the block until all have reached
    it. If a worker leaves the block with an error or dies, the processes of all others end with
    status 1 and one line that names it, because they may wait in an exchange of gradients.

    All workers must call the methods in the same order, with the same `what`. Values are JSON.

    `cluster`: None for a run of one process; `minutes`: how long to wait for the others to join.
    Raises: HostError if a worker does not join in time or runs another program, or if the port of
        this worker is in use.

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
        self._connections = _join(cluster, minutes) if cluster else {}
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
        """Raise HostError on all workers if a value by name differs between them."""
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


# --- connections ---


def _join(cluster: Cluster, minutes: float) -> dict[int, Connection]:
    """Wait until all workers have joined; return the connections by the index of the worker."""
    deadline = time.monotonic() + 60 * minutes
    name = cluster.name(cluster.index)
    logging.info("%s: waiting up to %g minutes for the others", name, minutes)
    with _listener(cluster) as listener:
        if cluster.index == 0:
            return _accept_all(listener, cluster, deadline)
    return {0: _connect(cluster, deadline)}


def send(connection: Connection, message: Any) -> None:
    """Send a JSON value, which may contain NumPy's numbers. Raises: OSError."""
    connection.send_bytes(json.dumps(message, default=lambda number: number.item()).encode())


def receive(connection: Connection) -> Any:
    """Return the next JSON value. Raises: OSError, EOFError, ValueError."""
    return json.loads(connection.recv_bytes(MAX_BYTES))


def _accept_all(
    listener: socket.socket, cluster: Cluster, deadline: float
) -> dict[int, Connection]:
    """Accept every other worker; answer when all have joined."""
    missing = set(range(1, len(cluster.workers)))
    joined: dict[int, Connection] = {}
    while missing:
        listener.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            connection = _connection(listener.accept()[0])
        except TimeoutError:
            names = ", ".join(cluster.name(k) for k in sorted(missing))
            raise HostError(f"{names}: did not join in time") from None
        try:
            if not connection.poll(HELLO_SECONDS):
                raise TimeoutError("no message")
            index = receive(connection)
            if index not in range(1, len(cluster.workers)):
                raise ValueError(f"worker {index!r}")
            joined[index] = connection  # a worker may connect a second time
            missing.discard(index)
        except BROKEN as error:
            logging.warning("closed a connection that is not of a worker of this run (%r)", error)
            connection.close()
    for connection in joined.values():
        with suppress(OSError):  # `Hosts` detects a worker that has ended
            send(connection, "joined")
    return joined


def _connect(cluster: Cluster, deadline: float) -> Connection:
    """Connect to the chief and wait for its answer."""
    while True:
        try:
            connection = _connection(socket.create_connection(cluster.address(0), HELLO_SECONDS))
            send(connection, cluster.index)
            if not connection.poll(max(deadline - time.monotonic(), 0)):
                raise TimeoutError("no answer")
            receive(connection)
            return connection
        except BROKEN as error:  # the chief does not listen yet
            if time.monotonic() > deadline:
                raise HostError(f"{cluster.name(0)}: did not answer in time ({error!r})") from None
            time.sleep(RETRY_SECONDS)


def _connection(connected: socket.socket) -> Connection:
    """Return a blocking connection that breaks if the other host does not respond."""
    connected.settimeout(None)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in KEEP_ALIVE.items():
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return Connection(connected.detach())


def _listener(cluster: Cluster) -> socket.socket:
    """Listen at this worker's port, on all interfaces, as TensorFlow does later; refuse a port in
    use, because TensorFlow would share it."""
    port = cluster.address(cluster.index)[1]
    both = socket.has_dualstack_ipv6()  # IPv4 and IPv6, or only IPv4
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise HostError(f"{cluster.name(cluster.index)}: port {port}: {error.strerror}") from None
