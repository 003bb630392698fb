"""Which workers a run has, from flags or from TF_CONFIG."""

import json

import pytest

from bilm.errors import OptionsError
from bilm.training.hosts import Cluster, find_cluster

TWO = ["a:1", "b:2"]


@pytest.fixture
def config(monkeypatch):
    """A function that sets TF_CONFIG."""

    def write(cluster, kind="worker", index=0):
        task = {"type": kind, "index": index}
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))

    return write


def test_cluster_flags_override_tf_config(config):
    config({"worker": ["c:3", "d:4"]})
    assert find_cluster(TWO, 1) == Cluster(("a:1", "b:2"), 1)


@pytest.mark.parametrize(("kind", "index", "expected"), [("chief", 0, 0), ("worker", 0, 1)])
def test_tf_config_chief_is_the_first_worker(config, kind, index, expected):
    config({"worker": ["b:2"], "chief": ["a:1"]}, kind, index)
    assert find_cluster() == Cluster(("a:1", "b:2"), expected)


@pytest.mark.parametrize("text", ["", "{}", '{"cluster": {"worker": ["a:1"]}}'])
def test_single_process_has_no_cluster(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    assert find_cluster() is None


@pytest.mark.parametrize(
    ("workers", "index", "message"),
    [
        (TWO, None, "--workers and --worker_index: expected both or neither"),
        (["a:1", "b"], 0, "--workers: found 'b', expected host:port"),
        (["a:1", "a:1"], 0, "--workers: found 'a:1', expected host:port, each once"),
        (TWO, 2, "--workers: found worker 2, expected 0 to 1"),
    ],
)
def test_invalid_cluster_flags_are_refused(workers, index, message):
    with pytest.raises(OptionsError) as error:
        find_cluster(workers, index)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("cluster", "index", "message"),
    [
        ({"worker": TWO, "ps": ["c:3"]}, 0, "TF_CONFIG: found other jobs"),
        ({"worker": TWO}, 2, "TF_CONFIG: found worker 2, expected 0 to 1"),
        (3, 0, "TF_CONFIG: "),
    ],
)
def test_invalid_tf_config_is_refused(config, cluster, index, message):
    config(cluster, index=index)
    with pytest.raises(OptionsError, match=message):
        find_cluster()
