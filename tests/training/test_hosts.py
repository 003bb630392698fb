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
from worker_runs import addresses

from bilm.errors import DataError, HostError
from bilm.training import joining
from bilm.training.cluster import Cluster
from bilm.training.hosts import Hosts

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


def test_each_worker_gets_the_values_of_all():
    def exchange(hosts):
        return [hosts.gather("number", [hosts.index, step]) for step in range(50)]

    found, _ = side_by_side(exchange, 3)
    assert found == [[[[k, step] for k in range(3)] for step in range(50)]] * 3


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_workers_at_addresses_of_ipv6():
    workers = [a.replace("127.0.0.1", "[::1]") for a in addresses(2)]
    found, _ = side_by_side(lambda hosts: hosts.gather("number", hosts.index), 2, workers)
    assert found == [[0, 1]] * 2


def test_the_error_of_one_worker_ends_all_with_its_line():
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
def test_a_worker_that_dies_is_named_by_all_others(dead):
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
        assert f"worker {dead} ({workers[dead]}) ended without a word" in str(found[k])


def test_workers_that_run_different_programs_are_told():
    found, _ = side_by_side(lambda hosts: hosts.gather(f"point {hosts.index}", 1), 2)
    assert "is at 'point 1'" in str(found[0]) and "at 'point 0'" in str(found[0])
    assert isinstance(found[1], HostError)


def test_a_worker_that_does_not_come_is_named_by_all_others():
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


def test_a_chief_that_does_not_come_is_named():
    workers = addresses(2)
    with pytest.raises(HostError) as error:
        Hosts(Cluster(tuple(workers), 1), SOON)
    assert str(error.value).startswith(f"worker 0 ({workers[0]}): did not join within")


@pytest.mark.parametrize("index", [0, 1])
def test_a_port_in_use_is_refused_by_all(index, monkeypatch):
    monkeypatch.setattr(joining, "GREETING_SECONDS", 0.5)
    workers = addresses(2)
    port = int(workers[index].rpartition(":")[2])
    with socket.create_server(("", port)):
        found, _ = side_by_side(lambda hosts: None, 2, workers, SOON)
    line = f"worker {index} ({workers[index]}): port {port} is in use on this host"
    assert str(found[index]).startswith(line)
    assert isinstance(found[1 - index], HostError)


def test_workers_with_other_addresses_are_refused():
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
def test_a_stranger_at_the_port_does_not_disturb(greeting, monkeypatch, log):
    monkeypatch.setattr(joining, "GREETING_SECONDS", 0.5)
    workers = addresses(2)
    chief, found = start_chief(workers)
    with connected(("127.0.0.1", int(workers[0].rpartition(":")[2]))) as stranger:
        stranger.sendall(greeting + struct.pack("!i", 2) + b"\xff{")
        with Hosts(Cluster(tuple(workers), 1), 1) as hosts:
            assert hosts.gather("number", 1) == [0, 1]
    chief.join(PATIENCE)
    assert found == [[0, 1]]
    assert "a connection that is no worker of this run was closed" in log.text


def test_a_second_process_of_one_worker_is_refused():
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
    assert found == [f"worker 1 ({workers[1]}): joined before; another process runs"]
    work(Cluster(tuple(workers), 2))
    for thread in [*twice, chief]:
        thread.join(PATIENCE)
    assert found[1:] == [[0, 1, 2]] * 2


def test_a_worker_that_is_started_again_while_others_join_replaces_the_first():
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


def test_tensorflow_can_listen_at_the_port_of_the_chief_afterwards():
    def listen(hosts):
        _, port = hosts.cluster.address(hosts.index)
        with socket.create_server(("", port)):
            return hosts.gather("listening", True)

    assert side_by_side(listen, 2)[0] == [[True, True]] * 2
