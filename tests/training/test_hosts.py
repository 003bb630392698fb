"""How workers find each other, agree and end: real sockets, a process for each worker."""

import json
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import types
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from tiny_runs import HELDOUT, TEXT, VOCABULARY, WORDS, tiny_options
from worker_runs import addresses

import bilm
from bilm.errors import BilmError, DataError, HostError
from bilm.training.devices import Devices
from bilm.training.hosts import Cluster, Hosts

SOON = 0.05  # minutes, in which the workers that are there find each other
PATIENCE = 60  # seconds, after which a process hangs
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["bilm.training.run", "pytest"])


def clusters(n_workers, workers=None):
    """The cluster as each worker sees it."""
    workers = tuple(workers or addresses(n_workers))
    return [Cluster(workers, k) for k in range(n_workers)]


def work(do, cluster, minutes, path):
    """Join the others, do something, and end with them; write the result, or the error."""
    with open(path, "w") as log:
        os.dup2(log.fileno(), 2)
    try:
        with Hosts(cluster, minutes) as hosts:
            result = do(hosts)
    except BilmError as error:
        sys.exit(f"error: {error}")
    path.with_suffix(".json").write_text(json.dumps(result))


class Worker:
    """A process that calls `do(hosts)`."""

    def __init__(self, do, cluster, folder, minutes=1.0):
        self.path = folder / f"{cluster.address(cluster.index)[1]}.log"
        arguments = do, cluster, minutes, self.path
        self.process = processes.Process(target=work, args=arguments)
        self.process.start()

    def outcome(self):
        """Return the result of `do`, or the last line of standard error."""
        self.process.join(PATIENCE)
        result = self.path.with_suffix(".json")
        if self.process.exitcode == 0:
            return json.loads(result.read_text())
        return (self.path.read_text().splitlines() or [f"status {self.process.exitcode}"])[-1]


@pytest.fixture
def side_by_side(tmp_path):
    """A function that calls `do(hosts)` on each worker and returns results or errors."""

    def call(do, workers, minutes=1.0):
        started = [Worker(do, cluster, tmp_path, minutes) for cluster in workers]
        return [worker.outcome() for worker in started]

    return call


def numbers(hosts):
    return [hosts.gather("number", [hosts.index, np.int64(step)])[1:] for step in range(50)]


def shared(hosts):
    value = hosts.from_chief("value", lambda: [float(hosts.index), 1.5])
    hosts.check_alike("nested", lambda: {"a": {"b": [1, 2]}, "c": value})
    return value


def differing(hosts):
    hosts.check_alike("equal", lambda: {"weights": "aa"})
    hosts.check_alike("inputs", lambda: {"sizes": {"dim": 5, "layers": [hosts.index]}})


def other_program(hosts):
    hosts.gather(f"point {hosts.index}", 1)


def test_gather_returns_the_values_of_all_workers(side_by_side):
    found = side_by_side(numbers, clusters(3))
    assert found == [[[[k, step] for k in (1, 2)] for step in range(50)]] * 3


def test_value_of_the_chief_is_shared(side_by_side):
    assert side_by_side(shared, clusters(2)) == [[0.0, 1.5]] * 2
    with Hosts() as alone:
        assert shared(alone) == [0.0, 1.5]


def test_workers_that_differ_are_refused_by_all_with_the_value_that_differs(side_by_side):
    workers = clusters(2)
    first, second = (workers[0].name(k) for k in range(2))
    line = f"{second}: sizes.layers is [1], but [0] on {first}; expected the same on all hosts"
    assert all(line in found for found in side_by_side(differing, workers))


def test_workers_running_different_programs_are_refused(side_by_side):
    found = side_by_side(other_program, clusters(2))
    assert any("is at 'point " in line and "expected the same program" in line for line in found)


def train(changes, folder, hosts):
    """Start a run; the strategy is not used before the inputs are compared."""
    extended = types.SimpleNamespace(worker_devices=["CPU:0"])
    two = types.SimpleNamespace(num_replicas_in_sync=2, extended=extended)
    others = {"heldout": HELDOUT} | (changes if hosts.index == 1 else {})
    options = tiny_options(**WORDS)
    devices = Devices(two, hosts)
    bilm.train(TEXT, folder / "run", options=options, vocab=VOCABULARY, devices=devices, **others)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({"heldout": None}, "heldout.text is None, but "), ({"seed": 7}, "seed is 7, but 0 on ")],
)
def test_workers_with_different_inputs_are_refused(tmp_path, side_by_side, changes, expected):
    workers = clusters(2)
    for line in side_by_side(partial(train, changes, tmp_path), workers):
        assert f"{workers[0].name(1)}: {expected}" in line
    # A worker that is ended at once leaves its lock file.
    assert [path.name for path in (tmp_path / "run").glob("*")] in ([], [".lock"])


def fail_on_the_second(hosts):
    if hosts.index == 1:
        raise DataError("text.txt, line 7: not UTF-8")
    hosts.gather("step", None)


def die(index, error, hosts):
    """Kill a worker; the others wait for it, or TensorFlow notices it first."""
    hosts.gather("start", None)
    if hosts.index == index:
        os.kill(os.getpid(), signal.SIGKILL)
    if error:
        raise tf.errors.UnavailableError(None, None, "lost")
    hosts.gather("step", None)


def die_at_the_end(hosts):
    """Kill the second worker while it waits for the chief, which still saves."""
    if hosts.is_chief:
        time.sleep(1)
    else:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return hosts.index


def test_error_of_one_worker_ends_all_workers(side_by_side):
    workers = clusters(3)
    found = side_by_side(fail_on_the_second, workers)
    message = "text.txt, line 7: not UTF-8"
    line = f"error: {workers[0].name(1)} has ended: {message}"
    assert found == [line, f"error: {message}", line]


@pytest.mark.parametrize(("dead", "error"), [(0, False), (2, False), (1, True)])
def test_dead_worker_is_named_by_all_others(side_by_side, dead, error):
    workers = clusters(3)
    found = side_by_side(partial(die, dead, error), workers)
    for k in {0, 1, 2} - {dead}:
        assert f"error: {workers[0].name(dead)} ended without a message" in found[k]


def test_death_of_a_worker_that_has_ended_does_not_end_the_run(side_by_side):
    assert side_by_side(die_at_the_end, clusters(2))[0] == 0


def test_missing_worker_is_named_by_the_chief(side_by_side):
    workers = clusters(3)
    found = side_by_side(shared, workers[:2], SOON)
    assert found[0] == f"error: {workers[0].name(2)}: did not join in time"
    assert f"error: {workers[0].name(0)}: did not answer in time" in found[1]


@pytest.mark.parametrize("index", [0, 1])
def test_port_in_use_is_refused(index):
    cluster = clusters(2)[index]
    _, port = cluster.address(index)
    with socket.create_server(("", port)), pytest.raises(HostError) as error:
        Hosts(cluster, SOON)
    assert str(error.value).startswith(f"{cluster.name(index)}: port {port}: Address already in")


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\1{", b"\0\0\0\1" + b"7"])
def test_join_ignores_connections_of_other_programs(sent, tmp_path):
    chief, second = clusters(2)
    started = [Worker(shared, chief, tmp_path)]
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            stranger = socket.create_connection(chief.address(0), timeout=10)
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    stranger.sendall(sent)
    stranger.close()
    started.append(Worker(shared, second, tmp_path))
    assert [worker.outcome() for worker in started] == [[0.0, 1.5]] * 2
    assert "closed a connection that is not of a worker" in started[0].path.read_text()
