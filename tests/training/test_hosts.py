"""How workers find each other, agree and end: real sockets, a thread for each worker."""

import json
import os
import socket
import struct
import threading
import time

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
import tensorflow as tf
from worker_runs import addresses

from bilm.errors import DataError, HostError
from bilm.training.hosts import exchange, joining
from bilm.training.hosts.cluster import Cluster
from bilm.training.hosts.exchange import Hosts

SOON = 0.05  # minutes, in which the workers that are there find each other
PATIENCE = 60  # seconds, after which a thread hangs


@pytest.fixture(autouse=True)
def knock_often(monkeypatch):
    monkeypatch.setattr(joining, "RETRY_SECONDS", 0.05)


def side_by_side(do, n_workers, workers=None, minutes=1.0):
    """Call `do(hosts)` on each worker, a thread each; return results or errors by worker."""
    workers, found = workers or addresses(n_workers), {}

    def work(k):
        try:
            with Hosts(Cluster(tuple(workers), k), minutes) as hosts:
                found[k] = do(hosts)
        except Exception as error:
            found[k] = error

    threads = [threading.Thread(target=work, args=(k,)) for k in range(n_workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    return [found[k] for k in range(n_workers)], workers


def test_gather_returns_the_values_of_all_workers():
    def exchange(hosts):
        return [hosts.gather("number", [hosts.index, step]) for step in range(50)]

    found, _ = side_by_side(exchange, 3)
    assert found == [[[[k, step] for k in range(3)] for step in range(50)]] * 3


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_workers_at_ipv6_addresses():
    workers = [a.replace("127.0.0.1", "[::1]") for a in addresses(2)]
    found, _ = side_by_side(lambda hosts: hosts.gather("number", hosts.index), 2, workers)
    assert found == [[0, 1]] * 2


def test_error_of_one_worker_ends_all_workers():
    def fail_on_the_second(hosts):
        if hosts.index == 1:
            raise DataError("text.txt, line 7: not UTF-8")
        return hosts.gather("step", None)

    found, workers = side_by_side(fail_on_the_second, 3)
    assert isinstance(found[1], DataError)
    line = f"worker 1 ({workers[1]}) has ended: text.txt, line 7: not UTF-8"
    for k in (0, 2):
        assert isinstance(found[k], HostError) and str(found[k]) == line


@pytest.mark.parametrize("dead", [0, 2])
def test_dead_worker_is_named_by_all_others(dead):
    def die(hosts):
        if hosts.index == dead:
            # As the system does for a process that is killed: all at once, so that the
            # thread which listens here cannot tell one worker of another's end in between.
            with hosts._sending:
                for connection in hosts._connections.values():
                    with socket.socket(fileno=os.dup(connection.fileno())) as own:
                        own.shutdown(socket.SHUT_RDWR)
        return hosts.gather("step", None)

    found, workers = side_by_side(die, 3)
    for k in {0, 1, 2} - {dead}:
        assert f"worker {dead} ({workers[dead]}) ended without a message" in str(found[k])


def test_workers_running_different_programs_are_refused():
    found, _ = side_by_side(lambda hosts: hosts.gather(f"point {hosts.index}", 1), 2)
    assert "is at 'point 1'" in str(found[0]) and "at 'point 0'" in str(found[0])
    assert isinstance(found[1], HostError)


def test_missing_worker_is_named_by_all_others():
    workers, found = addresses(3), {}

    def work(k):
        try:
            Hosts(Cluster(tuple(workers), k), SOON)
        except HostError as error:
            found[k] = str(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in (0, 1)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    line = f"worker 2 ({workers[2]}): did not join within {SOON} minutes"
    assert found == {0: line, 1: line}
    assert time.monotonic() - start < joining.LATE_SECONDS  # the chief has told the other


def test_missing_chief_is_named():
    workers = addresses(2)
    with pytest.raises(HostError) as error:
        Hosts(Cluster(tuple(workers), 1), SOON)
    assert str(error.value).startswith(f"worker 0 ({workers[0]}): did not answer within")


@pytest.mark.parametrize("index", [0, 1])
def test_port_in_use_is_refused_by_all_workers(index, monkeypatch):
    monkeypatch.setattr(joining, "GREETING_SECONDS", 0.5)
    workers = addresses(2)
    port = int(workers[index].rpartition(":")[2])
    with socket.create_server(("", port)):
        found, _ = side_by_side(lambda hosts: None, 2, workers, SOON)
    line = f"worker {index} ({workers[index]}): port {port} is in use on this host"
    assert str(found[index]).startswith(line)
    assert isinstance(found[1 - index], HostError)


def test_workers_with_different_addresses_are_refused():
    workers, found = addresses(3), {}

    def work(k, mine):
        try:
            Hosts(Cluster(tuple(mine), k), SOON)
        except HostError as error:
            found[k] = str(error)

    lists = {0: workers[:2], 1: [workers[0], workers[2]]}
    threads = [threading.Thread(target=work, args=item) for item in lists.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert found[0] == found[1] and "workers is" in found[0]
    assert f"worker 1 ({workers[1]})" in found[0]


def start_chief(workers):
    """Start the chief; return its thread, and a list that takes what it gathers."""
    found = []

    def work():
        with Hosts(Cluster(tuple(workers), 0), 1) as hosts:
            found.append(hosts.gather("number", 0))

    thread = threading.Thread(target=work)
    thread.start()
    return thread, found


def gather_once(cluster):
    with Hosts(cluster, 1) as hosts:
        return hosts.gather("number", hosts.index)


def connected(address):
    """Connect as soon as somebody listens."""
    while True:
        try:
            return socket.create_connection(address, timeout=10)
        except ConnectionRefusedError:
            time.sleep(0.02)


@pytest.mark.parametrize("greeting", [b"", b"GET / HTTP/1.1\r\n\r\n", joining.GREETING])
def test_stranger_at_the_port_is_ignored(greeting, monkeypatch, log):
    monkeypatch.setattr(joining, "GREETING_SECONDS", 0.5)
    workers = addresses(2)
    chief, found = start_chief(workers)
    with connected(("127.0.0.1", int(workers[0].rpartition(":")[2]))) as stranger:
        stranger.sendall(greeting + struct.pack("!i", 2) + b"\xff{")
        with Hosts(Cluster(tuple(workers), 1), 1) as hosts:
            assert hosts.gather("number", 1) == [0, 1]
    chief.join(PATIENCE)
    assert found == [[0, 1]]
    assert "closed a connection that does not come from a worker of this run" in log.text


@pytest.mark.parametrize("length", [5_000, 1 << 30, -1])
def test_hello_that_is_too_deep_or_too_long_is_refused(length, log):
    workers = addresses(2)
    chief, found = start_chief(workers)
    with connected(("127.0.0.1", int(workers[0].rpartition(":")[2]))) as stranger:
        stranger.sendall(joining.GREETING + struct.pack("!i", length) + b"[" * 5_000)
        assert gather_once(Cluster(tuple(workers), 1)) == [0, 1]
    chief.join(PATIENCE)
    assert found == [[0, 1]]
    assert "closed a connection that does not come from a worker of this run" in log.text


@pytest.mark.parametrize("sent", [b"", joining.GREETING, joining.GREETING + b"\0\0\0\x09{"])
def test_partial_hello_does_not_hold_up_the_join(sent):
    """It would be waited for without end, or for ten seconds; the chief has three."""
    workers, found = addresses(2), []

    def work():
        try:
            Hosts(Cluster(tuple(workers), 0), SOON)
        except HostError as error:
            found.append(str(error))

    chief = threading.Thread(target=work)
    chief.start()
    with connected(("127.0.0.1", int(workers[0].rpartition(":")[2]))) as stranger:
        stranger.sendall(sent)
        chief.join(joining.GREETING_SECONDS - 1)
        assert not chief.is_alive()
    assert "did not join within" in found[0]


def test_chief_listens_only_at_the_given_address():
    with joining._listener(Cluster(("127.0.0.1:" + addresses(1)[0].rpartition(":")[2],), 0)) as at:
        assert at.getsockname()[0] == "127.0.0.1"


def test_worker_that_does_not_answer_is_named(monkeypatch):
    """Its connection stays open, as if the process was stopped."""
    monkeypatch.setattr(exchange, "ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(exchange, "SILENT_SECONDS", 1.0)
    workers, found = addresses(2), []

    def work():
        try:
            with Hosts(Cluster(tuple(workers), 0), 1) as hosts:
                hosts.gather("step", None)
        except HostError as error:
            found.append(str(error))

    chief = threading.Thread(target=work)
    chief.start()
    silent = joining.join(Cluster(tuple(workers), 1), 1)
    chief.join(PATIENCE)
    silent[0].close()
    assert found[0].startswith(f"worker 1 ({workers[1]}) did not answer for")


def test_chief_may_save_for_long_after_the_others_have_ended(monkeypatch):
    monkeypatch.setattr(exchange, "ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(exchange, "SILENT_SECONDS", 1.0)
    found, _ = side_by_side(lambda hosts: time.sleep(2.5 if hosts.is_chief else 0), 3)
    assert found == [None] * 3


@pytest.mark.parametrize("named", [True, False])
def test_error_of_the_exchange_becomes_a_line_that_names_the_worker(monkeypatch, named):
    monkeypatch.setattr(exchange, "NEWS_SECONDS", 0.2)
    task = "/job:worker/replica:0/task:1 " if named else ""

    def fail(hosts):
        if hosts.index == 0:
            raise tf.errors.UnavailableError(None, None, f"{task}lost\nmore lines")
        return hosts.gather("step", None)

    found, workers = side_by_side(fail, 2)
    name = f"worker 1 ({workers[1]})" if named else "another worker"
    assert all(isinstance(error, HostError) for error in found)
    assert str(found[0]) == str(found[1])
    assert str(found[0]).startswith(f"{name}: worker 0 ({workers[0]}) cannot exchange gradients")
    assert "\n" not in str(found[0])


def test_second_process_of_one_worker_is_refused():
    workers, found = addresses(3), []

    def work(cluster):
        try:
            with Hosts(cluster, 1) as hosts:
                found.append(hosts.gather("number", hosts.index))
        except HostError as error:
            found.append(str(error))

    chief, _ = start_chief(workers)
    twice = [threading.Thread(target=work, args=(Cluster(tuple(workers), 1),)) for _ in range(2)]
    for thread in twice:
        thread.start()
    while not found:  # the one that came second
        time.sleep(0.02)
    problem = "another process has already joined with this index; end one of the two"
    assert found == [f"worker 1 ({workers[1]}): {problem}"]
    work(Cluster(tuple(workers), 2))
    for thread in [*twice, chief]:
        thread.join(PATIENCE)
    assert found[1:] == [[0, 1, 2]] * 2


def test_restarted_worker_replaces_the_first_while_joining():
    workers = addresses(3)
    chief, found = start_chief(workers)
    cluster = Cluster(tuple(workers), 1)
    with connected(cluster.address(0)) as first:
        first.sendall(joining.GREETING)
        hello = json.dumps(joining._hello(cluster)).encode()
        first.sendall(struct.pack("!i", len(hello)) + hello)
        first.recv(len(joining.GREETING))
    again: list = []
    thread = threading.Thread(target=lambda: again.append(gather_once(cluster)))
    thread.start()
    assert gather_once(Cluster(tuple(workers), 2)) == [0, 1, 2]
    thread.join(PATIENCE)
    chief.join(PATIENCE)
    assert again == found == [[0, 1, 2]]


def test_port_of_the_chief_is_free_after_joining():
    def listen(hosts):
        _, port = hosts.cluster.address(hosts.index)
        with socket.create_server(("", port)):
            return hosts.gather("listening", True)

    assert side_by_side(listen, 2)[0] == [[True, True]] * 2
