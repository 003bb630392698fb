"""How workers find each other, agree and end: real sockets, a thread for each worker."""

import json
import os
import shutil
import socket
import struct
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
import tensorflow as tf
from tiny_runs import HELDOUT, TEXT, VOCABULARY, WORDS, tiny_options, tiny_run
from worker_runs import addresses

from bilm.errors import DataError, HostError
from bilm.storage.checkpoint import latest_checkpoint
from bilm.training.hosts import agreement, exchange, joining
from bilm.training.hosts.cluster import Cluster
from bilm.training.hosts.exchange import Alone, Hosts
from bilm.training.run import TrainingRun
from bilm.training.run_folder import RunFolder

SOON = 0.05  # minutes, in which the workers that are there find each other
PATIENCE = 60  # seconds, after which a thread hangs


@pytest.fixture(autouse=True)
def knock_often(monkeypatch):
    monkeypatch.setattr(joining, "RETRY_SECONDS", 0.05)


@pytest.fixture
def short_silence(monkeypatch):
    """A worker is considered lost after a second."""
    monkeypatch.setattr(exchange, "ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(exchange, "SILENT_SECONDS", 1.0)


@pytest.fixture
def start():
    """A function that calls another one in a thread and returns its future."""
    with ThreadPoolExecutor(9) as pool:
        yield pool.submit


def clusters(n_workers, workers=None):
    """The cluster as each worker sees it."""
    workers = tuple(workers or addresses(n_workers))
    return [Cluster(workers, k) for k in range(n_workers)]


def numbers(hosts):
    return hosts.gather("number", hosts.index)


def work(cluster, do=numbers, minutes=1.0):
    """Join the others, do something, and end with them."""
    with Hosts(cluster, minutes) as hosts:
        return do(hosts)


def outcome(future):
    """The result of a thread, or its error."""
    return future.exception(PATIENCE) or future.result()


def side_by_side(do, workers, minutes=1.0):
    """Call `do(hosts)` on each worker, a thread each; return results or errors."""
    with ThreadPoolExecutor(len(workers)) as pool:
        futures = [pool.submit(work, worker, do, minutes) for worker in workers]
        return [outcome(future) for future in futures]


def connected(cluster):
    """Connect to the chief as soon as it listens."""
    while True:
        try:
            return socket.create_connection(cluster.address(0), timeout=10)
        except ConnectionRefusedError:
            time.sleep(0.02)


# --- exchanging values ---


def test_gather_returns_the_values_of_all_workers():
    def exchange(hosts):
        return [hosts.gather("number", [hosts.index, np.int64(step)]) for step in range(50)]

    found = side_by_side(exchange, clusters(3))
    assert found == [[[[k, step] for k in range(3)] for step in range(50)]] * 3


def test_value_of_the_chief_is_made_once():
    made = []

    def share(hosts):
        return hosts.from_chief("value", lambda: made.append(hosts.index) or [np.float32(1.5)])

    assert side_by_side(share, clusters(3)) == [[1.5]] * 3
    assert share(Alone()) == [1.5] and made == [0, 0]


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_workers_at_ipv6_addresses():
    workers = [a.replace("127.0.0.1", "[::1]") for a in addresses(2)]
    assert side_by_side(numbers, clusters(2, workers)) == [[0, 1]] * 2


def test_workers_running_different_programs_are_refused():
    found = side_by_side(lambda hosts: hosts.gather(f"point {hosts.index}", 1), clusters(2))
    assert "is at 'point 1'" in str(found[0]) and "at 'point 0'" in str(found[0])
    assert isinstance(found[1], HostError)


# --- agreeing ---


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"heldout_prefix": "longer"}, "shard 0 of the held-out text is longer, 4 bytes, but "),
        ({"heldout_prefix": None}, "shard 0 of the held-out text is None, but "),
        ({"train_prefix": "longer"}, "shard 0 of the text is longer, 4 bytes, but "),
        ({"vocab_file": "words.txt"}, "SHA-256 of the vocabulary is "),
        ({"seed": 7}, "seed is 7, but 0 on "),
    ],
)
def test_workers_with_different_inputs_are_refused(tmp_path, monkeypatch, changes, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "longer").write_text("the\n")
    (tmp_path / "words.txt").write_text("<S>\n</S>\n<UNK>\nthe\n")
    extended = types.SimpleNamespace(worker_devices=["CPU:0"])
    two = types.SimpleNamespace(num_replicas_in_sync=2, extended=extended)

    def train(hosts):
        files = {"vocab_file": VOCABULARY, "train_prefix": TEXT, "heldout_prefix": HELDOUT}
        given = files | (changes if hosts.index == 1 else {})
        options = tiny_options(**WORDS)
        TrainingRun(options, save_dir=tmp_path / "run", strategy=two, hosts=hosts, **given).train()

    workers = clusters(2)
    for error in side_by_side(train, workers):
        assert isinstance(error, HostError)
        assert str(error).startswith(f"{workers[0].name(1)}: {expected}")
    assert not (tmp_path / "run").exists()


def test_checkpoint_is_awaited_in_a_lagging_shared_folder(tmp_path):
    source, late = tiny_run("words"), tmp_path / "run"

    def open_checkpoint(hosts):
        if hosts.is_chief:
            threading.Timer(0.5, shutil.copytree, (source, late)).start()
        folder = RunFolder(source if hosts.is_chief else late)
        return agreement.agreed_checkpoint(hosts, folder).path

    found = side_by_side(open_checkpoint, clusters(2))
    assert found == [latest_checkpoint(folder).path for folder in (source, late)]
    assert agreement.agreed_checkpoint(Alone(), RunFolder(tmp_path)) is None


def test_missing_checkpoint_of_a_worker_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(agreement, "LAG_SECONDS", 0)
    workers, folders = clusters(2), [RunFolder(tiny_run("words")), RunFolder(tmp_path)]
    found = side_by_side(
        lambda hosts: agreement.agreed_checkpoint(hosts, folders[hosts.index]), workers
    )
    line = str(found[1])
    assert line.startswith(f"{workers[0].name(1)}: {tmp_path}/model.ckpt-2")
    assert "expected a folder of the run that all hosts share" in line


def test_save_is_refused_if_text_positions_of_workers_differ():
    def check(hosts):
        agreement.check_place(hosts, 2, {"forward_reader": np.arange(6)})
        agreement.check_place(hosts, 3, {"forward_reader": np.arange(6) + hosts.index})

    check(Alone())
    for error in side_by_side(check, clusters(2)):
        assert "is at another place in the text than worker 0" in str(error)
        assert "after step 3, so that nothing was saved" in str(error)


def test_start_is_refused_if_weights_of_workers_differ():
    def check(hosts):
        agreement.check_same_start(hosts, lambda: {"weights": "aa", "adagrad": "cc"}, None)
        mine = {"weights": f"a{hosts.index}", "adagrad": "cc"}
        agreement.check_same_start(hosts, lambda: mine, None)

    workers = clusters(2)
    for error in side_by_side(check, workers):
        assert str(error) == (
            f"{workers[0].name(1)}: SHA-256 of the weights before step 1 is a1, but a0 on "
            f"{workers[0].name(0)}; expected the same on all hosts"
        )
    agreement.check_same_start(Alone(), lambda: pytest.fail("needs no digest"), None)


# --- ending ---


def test_error_of_one_worker_ends_all_workers():
    def fail_on_the_second(hosts):
        if hosts.index == 1:
            raise DataError("text.txt, line 7: not UTF-8")
        return hosts.gather("step", None)

    workers = clusters(3)
    found = side_by_side(fail_on_the_second, workers)
    assert isinstance(found[1], DataError)
    line = f"{workers[0].name(1)} has ended: text.txt, line 7: not UTF-8"
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

    workers = clusters(3)
    found = side_by_side(die, workers)
    for k in {0, 1, 2} - {dead}:
        assert f"{workers[0].name(dead)} ended without a message" in str(found[k])


def test_death_of_a_worker_that_has_ended_does_not_end_the_run(start, monkeypatch):
    """It waits for the chief, which still saves; the run is complete without it."""
    monkeypatch.setattr(exchange, "NEWS_SECONDS", 0.2)
    chief, second = clusters(2)
    dead = threading.Event()
    saving = start(work, chief, lambda hosts: dead.wait(PATIENCE))
    (connection,) = joining.join(second, 1).values()
    joining.send(connection, {"what": exchange.END, "value": None})
    connection.close()
    dead.set()
    assert outcome(saving) is True


def test_death_of_the_chief_is_an_error_of_a_worker_that_has_ended(start):
    chief, second = clusters(2)
    ended = start(work, second, lambda hosts: None)
    (connection,) = joining.join(chief, 1).values()
    while joining.receive(connection).get("what") != exchange.END:
        pass  # signs of life
    connection.close()
    assert f"{chief.name(0)} ended without a message" in str(outcome(ended))


def test_worker_that_does_not_answer_is_named(start, short_silence):
    """Its connection stays open, as if the process was stopped."""
    chief, second = clusters(2)
    waiting = start(work, chief, lambda hosts: hosts.gather("step", None))
    (silent,) = joining.join(second, 1).values()
    assert str(outcome(waiting)).startswith(f"{chief.name(1)} did not answer for")
    silent.close()


def test_suspended_time_of_this_process_does_not_count_as_silence(start, monkeypatch):
    """As after SIGSTOP and SIGCONT of all workers: nobody has sent anything in the meantime."""
    suspended = [0.0]
    clock = types.SimpleNamespace(monotonic=lambda: time.monotonic() + sum(suspended))
    monkeypatch.setattr(exchange, "time", clock)
    monkeypatch.setattr(exchange, "ALIVE_SECONDS", 0.05)
    chief, second = clusters(2)
    gathered = start(work, chief)
    (connection,) = joining.join(second, 1).values()
    for _ in range(3):
        assert joining.receive(connection) == exchange.ALIVE
        suspended.append(2 * exchange.SILENT_SECONDS)
    while joining.receive(connection) != exchange.ALIVE:
        pytest.fail("the chief has ended")
    for what in ("number", exchange.END):
        joining.send(connection, {"what": what, "value": 1})
    assert outcome(gathered) == [0, 1]
    connection.close()


def test_chief_may_save_for_long_after_the_others_have_ended(short_silence):
    found = side_by_side(lambda hosts: time.sleep(2.5 if hosts.is_chief else 0), clusters(3))
    assert found == [None] * 3


@pytest.mark.parametrize("named", [True, False])
def test_error_of_the_exchange_becomes_a_line_that_names_the_worker(monkeypatch, named):
    monkeypatch.setattr(exchange, "NEWS_SECONDS", 0.2)
    task = "/job:worker/replica:0/task:1 " if named else ""

    def fail(hosts):
        if hosts.index == 0:
            raise tf.errors.UnavailableError(None, None, f"{task}lost\nmore lines")
        return hosts.gather("step", None)

    workers = clusters(2)
    found = side_by_side(fail, workers)
    name = workers[0].name(1) if named else "another worker"
    assert all(isinstance(error, HostError) for error in found)
    assert str(found[0]) == str(found[1])
    assert str(found[0]).startswith(f"{name}: {workers[0].name(0)} cannot exchange gradients")
    assert "\n" not in str(found[0])


# --- joining ---


def test_missing_worker_is_named_by_all_others():
    workers = clusters(3)
    start = time.monotonic()
    found = side_by_side(numbers, workers[:2], SOON)
    line = f"{workers[0].name(2)}: did not join within {SOON} minutes"
    assert list(map(str, found)) == [line, line]
    assert time.monotonic() - start < joining.LATE_SECONDS  # the chief has told the other


def test_missing_chief_is_named():
    _, second = clusters(2)
    with pytest.raises(HostError) as error:
        Hosts(second, SOON)
    assert str(error.value).startswith(f"{second.name(0)}: did not answer within")


@pytest.mark.parametrize("index", [0, 1])
def test_port_in_use_is_refused_by_all_workers(index, monkeypatch):
    monkeypatch.setattr(joining, "GREETING_SECONDS", 0.5)
    workers = clusters(2)
    _, port = workers[0].address(index)
    with socket.create_server(("", port)):
        found = side_by_side(numbers, workers, SOON)
    line = f"{workers[0].name(index)}: port {port} is in use on this host"
    assert str(found[index]).startswith(line)
    assert isinstance(found[1 - index], HostError)


def test_workers_with_different_addresses_are_refused():
    chief, second, third = addresses(3)
    workers = [Cluster((chief, second), 0), Cluster((chief, third), 1)]
    found = list(map(str, side_by_side(numbers, workers, SOON)))
    assert found[0] == found[1] and "workers is" in found[0]
    assert workers[0].name(1) in found[0]


def framed(length, content):
    return joining.GREETING + struct.pack("!i", length) + content


@pytest.mark.parametrize(
    "sent",
    [
        framed(2, b"\xff{").removeprefix(joining.GREETING),
        b"GET / HTTP/1.1\r\n\r\n",
        framed(2, b"\xff{"),
        framed(5_000, b"[" * 5_000),
        framed(1 << 30, b"["),
        framed(-1, b"["),
    ],
    ids=["no greeting", "HTTP", "no JSON", "too deep", "too long", "negative length"],
)
def test_join_ignores_connections_of_other_programs(sent, start, monkeypatch, log):
    monkeypatch.setattr(joining, "GREETING_SECONDS", 0.5)
    chief, second = clusters(2)
    gathered = start(work, chief)
    with connected(chief) as stranger:
        stranger.sendall(sent)
        assert work(second) == [0, 1]
    assert outcome(gathered) == [0, 1]
    assert "closed a connection that does not come from a worker of this run" in log.text


@pytest.mark.parametrize("sent", [b"", joining.GREETING, framed(9, b"{")])
def test_partial_hello_does_not_hold_up_the_join(sent, start):
    """It would be waited for without end, or for ten seconds; the chief has three."""
    chief, _ = clusters(2)
    joined = start(work, chief, numbers, SOON)
    with connected(chief) as stranger:
        stranger.sendall(sent)
        error = joined.exception(joining.GREETING_SECONDS - 1)
    assert "did not join within" in str(error)


def test_chief_listens_only_at_the_given_address():
    with joining._listener(clusters(1)[0]) as at:
        assert at.getsockname()[0] == "127.0.0.1"


def test_second_process_of_one_worker_is_refused(start):
    workers = clusters(3)
    started = [start(work, workers[k]) for k in (0, 1, 1)]
    while not any(future.done() for future in started):  # the one that came second
        time.sleep(0.02)
    (refused,) = (future for future in started if future.done())
    problem = "another process has already joined with this index; end one of the two"
    assert str(outcome(refused)) == f"{workers[0].name(1)}: {problem}"
    started.remove(refused)
    assert [work(workers[2]), *map(outcome, started)] == [[0, 1, 2]] * 3


def test_restarted_worker_replaces_the_first_while_joining(start):
    workers = clusters(3)
    started = [start(work, workers[0])]
    with connected(workers[1]) as first:
        hello = json.dumps(joining._hello(workers[1])).encode()
        first.sendall(framed(len(hello), hello))
        first.recv(len(joining.GREETING))
    started += [start(work, cluster) for cluster in workers[1:]]
    assert list(map(outcome, started)) == [[0, 1, 2]] * 3


def test_port_of_the_chief_is_free_after_joining():
    def listen(hosts):
        _, port = hosts.cluster.address(hosts.index)
        with socket.create_server(("", port)):
            return hosts.gather("listening", True)

    assert side_by_side(listen, clusters(2)) == [[True, True]] * 2
