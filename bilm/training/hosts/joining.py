"""How the workers of a run find each other before TensorFlow starts on any of them.

The chief listens at its own address. Each of the other workers connects to it and sends a greeting,
and then a hello message with its index and versions. When all have joined, the chief answers, and
TensorFlow then listens at the same port. The connections remain open: `Hosts` uses them, and they
break if a worker dies.

TensorFlow alone would wait forever for a worker that does not start. TensorFlow accepts connections
on all interfaces of a host without authentication, so a run with several workers requires a trusted
network.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import socket
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import tensorflow as tf
from absl import logging

import bilm
from bilm.errors import HostError
from bilm.training.hosts.cluster import Cluster

GREETING = b"bilm workers 1\n"  # first message of both sides; identifies a bilm worker
GREETING_SECONDS = 10.0  # time limit for greeting and hello together
RETRY_SECONDS = 0.5
# Workers wait this much longer than the chief, so that the chief reports the timeout.
LATE_SECONDS = 30.0
MAX_BYTES = 1 << 26  # maximum size of a message between workers
MAX_HELLO_BYTES = 1 << 16  # maximum size of a hello, which may come from another program
LENGTH = struct.Struct("!i")  # length prefix of each message, as in multiprocessing.connection
# If a host loses power or network, TCP closes the connection after about 30 s: 10 s idle, then four
# probes at intervals of 5 s.
ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPALIVE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4} | {
    "TCP_USER_TIMEOUT": 30_000  # ms
}


def join(cluster: Cluster, minutes: float) -> dict[int, Connection]:
    """Wait until all workers have joined.

    Args:
        cluster: the workers, the same on all of them.
        minutes: maximum time to wait.
    Returns: connections by worker index: the chief has one to each other worker; each other worker
        has one to the chief.
    Raises: HostError if a worker does not join in time, if the port of this worker is in use, or if
        the workers were started with different versions or addresses.
    """
    deadline = time.monotonic() + 60 * minutes
    if cluster.index == 0:
        return _welcome(cluster, deadline, minutes)
    return {0: _knock(cluster, deadline, minutes)}


def encode(value: Any) -> bytes:
    """Return a value as JSON; it may contain NumPy's numbers."""
    return json.dumps(value, default=lambda number: number.item()).encode()


def send(connection: Connection, message: Any) -> None:
    """Send a JSON value. Raises: OSError."""
    connection.send_bytes(encode(message))


def receive(connection: Connection) -> Any:
    """Return the next JSON value. Raises: OSError, EOFError, ValueError."""
    return json.loads(connection.recv_bytes(MAX_BYTES))


def _welcome(cluster: Cluster, deadline: float, minutes: float) -> dict[int, Connection]:
    """Accept every other worker; answer them when all have joined."""
    there: dict[int, Connection] = {}
    n_workers = len(cluster.workers)
    with _listener(cluster) as listener:
        logging.info(
            "%d workers in total: waiting up to %g minutes for the others", n_workers, minutes
        )
        # A worker that has joined sends nothing until it is answered, so a readable connection
        # means that the worker has ended.
        while missing := [k for k in range(1, n_workers) if k not in there or there[k].poll()]:
            listener.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                accepted, _ = listener.accept()
            except TimeoutError:
                names = ", ".join(map(cluster.name, missing))
                _refuse(there, f"{names}: did not join within {minutes:g} minutes")
            if (found := _greet(accepted, cluster, deadline)) is not None:
                index, connection, problem = found
                if index in there and not there[index].poll():
                    problem = (
                        "another process has already joined with this index; end one of the two"
                    )
                    _answer([connection], f"{cluster.name(index)}: {problem}")
                    continue
                there[index] = connection
                if problem:
                    _refuse(there, problem)
    _answer(there.values(), None)
    return there


def _greet(
    accepted: socket.socket, cluster: Cluster, deadline: float
) -> tuple[int, Connection, str] | None:
    """Return the index, the connection and the problem ("" if none) of the worker that
    connected; None if it is not a worker of this run."""
    deadline = min(deadline, time.monotonic() + GREETING_SECONDS)
    try:
        _exchange_greetings(accepted, deadline)
        (n_bytes,) = LENGTH.unpack(_read(accepted, LENGTH.size, deadline))
        if not 0 < n_bytes <= MAX_HELLO_BYTES:
            raise ValueError(f"found a hello of {n_bytes} bytes")
        hello = json.loads(_read(accepted, n_bytes, deadline))
        index = hello["index"]
        if not (isinstance(index, int) and 0 < index < len(cluster.workers)):
            raise ValueError(f"there is no worker {index}")
        problem = _complaint(cluster, index, hello)
    except (OSError, EOFError, ValueError, LookupError, TypeError, RecursionError) as error:
        logging.warning(
            "closed a connection that does not come from a worker of this run (%r)", error
        )
        accepted.close()
        return None
    return index, _connection(accepted), problem


def _read(connected: socket.socket, n_bytes: int, deadline: float) -> bytes:
    """Read `n_bytes` bytes before a deadline. Raises: OSError, EOFError."""
    found = b""
    while len(found) < n_bytes:
        connected.settimeout(max(deadline - time.monotonic(), 0.001))
        part = connected.recv(n_bytes - len(found))
        if not part:
            raise EOFError("the connection was closed")
        found += part
    return found


def _complaint(cluster: Cluster, index: int, hello: dict[str, Any]) -> str:
    if problem := hello.get("problem"):
        return str(problem)
    for key, own in _hello(cluster).items():
        if key != "index" and hello.get(key) != own:
            return (
                f"{cluster.name(index)}: {key} is {hello.get(key)} on this worker, but {own} on "
                f"{cluster.name(0)}; expected the same on all"
            )
    return ""


def _hello(cluster: Cluster) -> dict[str, Any]:
    return {
        "index": cluster.index, "workers": list(cluster.workers),
        "bilm": bilm.__version__, "tensorflow": tf.__version__,
    }  # fmt: skip


def _refuse(there: dict[int, Connection], problem: str) -> None:
    _answer(there.values(), problem)
    raise HostError(problem)


def _answer(connections: Iterable[Connection], problem: str | None) -> None:
    """Send workers the problem, or None if the run can start. Workers that have ended are
    detected later."""
    for connection in connections:
        with suppress(OSError):
            send(connection, problem)


def _knock(cluster: Cluster, deadline: float, minutes: float) -> Connection:
    """Connect to the chief and wait for its answer."""
    logging.info("%s: joining %s", cluster.name(cluster.index), cluster.name(0))
    hello = _hello(cluster) | {"problem": _port_problem(cluster)}
    while True:
        try:
            return _enter(cluster, hello, deadline)
        except HostError:
            raise
        except (OSError, EOFError, ValueError) as error:  # the chief does not listen yet
            if time.monotonic() > deadline:
                raise HostError(
                    f"{cluster.name(0)}: did not answer within {minutes:g} minutes ({error!r})"
                ) from None
            time.sleep(RETRY_SECONDS)


def _enter(cluster: Cluster, hello: dict[str, Any], deadline: float) -> Connection:
    connected = socket.create_connection(cluster.address(0), timeout=GREETING_SECONDS)
    try:
        _exchange_greetings(connected, time.monotonic() + GREETING_SECONDS)
    except BaseException:
        connected.close()
        raise
    connection = _connection(connected)
    send(connection, hello)
    if not connection.poll(max(deadline - time.monotonic(), 0) + LATE_SECONDS):
        raise TimeoutError("the chief does not answer")
    problem = receive(connection)
    if problem is not None:
        raise HostError(problem)
    return connection


def _exchange_greetings(connected: socket.socket, deadline: float) -> None:
    """Exchange greetings with the other side. Raises: OSError, EOFError, ValueError."""
    connected.settimeout(max(deadline - time.monotonic(), 0.001))
    connected.sendall(GREETING)
    found = b""
    while len(found) < len(GREETING) and GREETING.startswith(found):
        found += _read(connected, 1, deadline)
    if found != GREETING:
        raise ValueError(f"found {found!r}, expected the greeting of a bilm worker")


def _connection(connected: socket.socket) -> Connection:
    """Return a blocking connection that breaks if the other host does not respond."""
    connected.settimeout(None)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in ALIVE.items():
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return Connection(connected.detach())


def _listener(cluster: Cluster) -> socket.socket:
    """Listen at this worker's IP address, or on all interfaces if the address is a host name. A
    host name may resolve to another address on this host than on the others, such as 127.0.1.1.

    Raises: HostError if the port is in use on any interface, because TensorFlow later listens on
        all of them.
    """
    if problem := _port_problem(cluster):
        raise HostError(problem)
    host, port = cluster.address(cluster.index)
    n_waiting = len(cluster.workers)
    with suppress(ValueError):  # a name
        version = ipaddress.ip_address(host).version
        family = socket.AF_INET6 if version == 6 else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family, backlog=n_waiting)
        # an address that is not on this host, for example if a container's address is translated
        except OSError as error:
            logging.warning(
                "%s: cannot listen at %s (%s); listening on all interfaces instead",
                cluster.name(cluster.index), host, error.strerror,
            )  # fmt: skip
    both = socket.has_dualstack_ipv6()  # IPv4 and IPv6, or only IPv4
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", port), family=family, backlog=n_waiting, dualstack_ipv6=both)


def _port_problem(cluster: Cluster) -> str | None:
    """Return why the port cannot be used, or None. Without this check, TensorFlow would share
    the port with another process.

    The check only binds the port. If it listened, a worker that connects during the check would
    lose its connection.
    """
    _, port = cluster.address(cluster.index)
    both = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if both else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if both:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return (
                f"{cluster.name(cluster.index)}: port {port} is in use on this host; end the "
                "process that uses it, or choose another port on all workers"
            )
    return None
