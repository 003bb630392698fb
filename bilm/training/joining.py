"""How the workers of a run find each other before TensorFlow starts on any of them.

The chief listens at its own address. Each other worker connects to it and says who it is. When all
are there, the chief lets them go; TensorFlow then listens at the same port. The connections stay
open: `Hosts` talks over them, and they break when a worker dies.

TensorFlow alone would wait without end for a worker that does not come.
"""

from __future__ import annotations

import errno
import json
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import tensorflow as tf
from absl import logging

import bilm
from bilm.errors import HostError
from bilm.training.cluster import Cluster

GREETING = b"bilm workers 1\n"  # both sides send it first: another service at the port does not
GREETING_SECONDS = 10.0  # a stranger that connects and says nothing is not waited for longer
RETRY_SECONDS = 0.5
LATE_SECONDS = 30.0  # how much longer a worker waits than the chief, whose clock decides
MAX_BYTES = 1 << 26  # of a message
# A host that loses its power or network says nothing: its silence ends the connection.
ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPALIVE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4} | {
    "TCP_USER_TIMEOUT": 30_000  # ms
}


def join(cluster: Cluster, minutes: float) -> dict[int, Connection]:
    """Wait until all workers are there.

    Args:
        cluster: the workers, the same on all of them.
        minutes: how long to wait.
    Returns: connections by worker: the chief has one to each other worker, they have one to it.
    Raises: HostError if a worker does not come in time, if the port of this worker is in use, if
        the workers were started with other versions or addresses.
    """
    deadline = time.monotonic() + 60 * minutes
    if cluster.index == 0:
        return _welcome(cluster, deadline, minutes)
    return {0: _knock(cluster, deadline, minutes)}


def send(connection: Connection, message: Any) -> None:
    """Send a JSON value. Raises: OSError."""
    connection.send_bytes(json.dumps(message).encode())


def receive(connection: Connection) -> Any:
    """Return the next JSON value. Raises: OSError, EOFError, ValueError."""
    return json.loads(connection.recv_bytes(MAX_BYTES))


def _welcome(cluster: Cluster, deadline: float, minutes: float) -> dict[int, Connection]:
    """Accept every other worker, and let them go when all are there."""
    there: dict[int, Connection] = {}
    n_workers = len(cluster.workers)
    with _listener(cluster) as listener:
        logging.info("waiting for the others of %d workers, up to %g minutes", n_workers, minutes)
        # One that is there says nothing yet: what can be read is that it has ended.
        while missing := [k for k in range(1, n_workers) if k not in there or there[k].poll()]:
            listener.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                accepted, _ = listener.accept()
            except TimeoutError:
                names = ", ".join(map(cluster.name, missing))
                _refuse(there, f"{names}: did not join within {minutes:g} minutes")
            if (found := _greet(accepted, cluster)) is not None:
                index, connection, problem = found
                if index in there and not there[index].poll():
                    name = cluster.name(index)
                    _answer([connection], f"{name}: joined before; another process runs")
                    continue
                there[index] = connection
                if problem:
                    _refuse(there, problem)
    _answer(there.values(), None)
    return there


def _greet(accepted: socket.socket, cluster: Cluster) -> tuple[int, Connection, str] | None:
    """Return who connected, and what is wrong with it, if anything; None for a stranger."""
    try:
        _exchange_greetings(accepted)
        connection = _connection(accepted)
        if not connection.poll(GREETING_SECONDS):
            raise EOFError
        hello = receive(connection)
        index = hello["index"]
        if not (isinstance(index, int) and 0 < index < len(cluster.workers)):
            raise ValueError(f"there is no worker {index}")
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        logging.warning("a connection that is no worker of this run was closed (%r)", error)
        accepted.close()
        return None
    return index, connection, _complaint(cluster, index, hello)


def _complaint(cluster: Cluster, index: int, hello: dict[str, Any]) -> str:
    if problem := hello.get("problem"):
        return str(problem)
    own = _hello(cluster)
    for key in ("workers", "bilm", "tensorflow"):
        if hello.get(key) != own[key]:
            return (
                f"{cluster.name(index)}: {key} is {hello.get(key)}, but {own[key]} on "
                f"{cluster.name(0)}; expected the same on all"
            )
    return ""


def _hello(cluster: Cluster) -> dict[str, Any]:
    versions = {"bilm": bilm.__version__, "tensorflow": tf.__version__}
    return {"index": cluster.index, "workers": list(cluster.workers), **versions}


def _refuse(there: dict[int, Connection], problem: str) -> None:
    _answer(there.values(), problem)
    raise HostError(problem)


def _answer(connections: Iterable[Connection], problem: str | None) -> None:
    """Let workers go, or tell them what is wrong. One that has ended is noticed later."""
    for connection in connections:
        with suppress(OSError):
            send(connection, problem)


def _knock(cluster: Cluster, deadline: float, minutes: float) -> Connection:
    """Connect to the chief and wait until it lets this worker go."""
    logging.info("%s: joining %s", cluster.name(cluster.index), cluster.name(0))
    hello = _hello(cluster) | {"problem": _port_problem(cluster)}
    while True:
        try:
            return _enter(cluster, hello, deadline)
        except HostError:
            raise
        except (OSError, EOFError, ValueError) as error:  # not there yet, or not yet the chief
            if time.monotonic() > deadline:
                raise HostError(
                    f"{cluster.name(0)}: did not join within {minutes:g} minutes ({error!r})"
                ) from None
            time.sleep(RETRY_SECONDS)


def _enter(cluster: Cluster, hello: dict[str, Any], deadline: float) -> Connection:
    connected = socket.create_connection(cluster.address(0), timeout=GREETING_SECONDS)
    try:
        _exchange_greetings(connected)
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


def _exchange_greetings(connected: socket.socket) -> None:
    """Tell the other side what this is, and read the same from it. Raises: OSError, ValueError."""
    connected.settimeout(GREETING_SECONDS)
    connected.sendall(GREETING)
    found = b""
    while len(found) < len(GREETING) and (part := connected.recv(len(GREETING) - len(found))):
        found += part
    if found != GREETING:
        raise ValueError(f"found {found!r}, expected a bilm worker")
    connected.settimeout(None)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in ALIVE.items():
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _connection(connected: socket.socket) -> Connection:
    return Connection(connected.detach())


def _listener(cluster: Cluster) -> socket.socket:
    """Listen at this worker's port on all of its addresses, as TensorFlow does."""
    _, port = cluster.address(cluster.index)
    both = socket.has_dualstack_ipv6()  # of IPv4 and IPv6, or IPv4 alone
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        return socket.create_server(
            ("", port), family=family, backlog=len(cluster.workers), dualstack_ipv6=both
        )
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise HostError(
            f"{cluster.name(cluster.index)}: port {port} is in use on this host; end the process "
            "that uses it, or choose another port on all workers"
        ) from None


def _port_problem(cluster: Cluster) -> str | None:
    """TensorFlow would share a port with another process of the same user without a word."""
    try:
        _listener(cluster).close()
    except HostError as error:
        return str(error)
    return None
