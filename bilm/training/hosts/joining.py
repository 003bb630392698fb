"""Which worker processes a run has, and how they find each other before TensorFlow starts on them.

The chief listens at the port of its address. Each of the other workers connects to it and sends its
index. When all have joined, the chief answers, and TensorFlow then listens at the same
port. The connections remain open: `Hosts` uses them, and they break if a worker dies.

TensorFlow alone would wait forever for a worker that does not start. It accepts connections on all
interfaces without authentication, so a run with several workers requires a trusted network.
"""

import json
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import tensorflow as tf
from absl import logging

from bilm.errors import HostError, OptionsError

TF_CONFIG = "TF_CONFIG"  # the environment variable that TensorFlow reads
HELLO_SECONDS = 10.0  # limit for the index of a new connection
RETRY_SECONDS = 0.5  # between attempts to reach the chief
MAX_BYTES = 1 << 26  # maximum size of a message
# If a host loses power or network, TCP closes the connection after about 30 s.
KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}
BROKEN = (OSError, EOFError, ValueError)  # raised by `receive`


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


def find_cluster(workers: Sequence[str] | None = None, index: int | None = None) -> Cluster | None:
    """Return the cluster that the arguments or TF_CONFIG describe; None for a single process.

    Args:
        workers: `host:port` of each worker process, the same on all of them; None for TF_CONFIG.
        index: the place of this process among them.
    Raises: OptionsError, naming the flag or the variable.
    """
    source = "--workers" if workers else TF_CONFIG
    if workers is None and index is None:
        workers, index = _read_config() if os.environ.get(TF_CONFIG) else ([], 0)
    if workers is None or index is None:
        raise OptionsError("--workers and --worker_index: expected both or neither")
    for address in workers:
        host, _, port = address.rpartition(":")
        if not (host and port.isdecimal() and len(port) < 6) or workers.count(address) > 1:
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


def join(cluster: Cluster, minutes: float) -> dict[int, Connection]:
    """Wait until all workers have joined, and return connections by worker index: the chief has one
    to each other worker; each other worker has one to the chief.

    Raises: HostError if a worker does not join in time or if the port of this worker is in use.
    """
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
