"""Which workers a run has, from flags or from TF_CONFIG."""

import json

import pytest

from bilm.errors import OptionsError
from bilm.training.hosts.cluster import Cluster, find_cluster

TWO = ["a:1", "b:2"]


def config(cluster, kind="worker", index=0):
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


def test_cluster_from_flags():
    assert find_cluster(TWO, 1, {}) == Cluster(("a:1", "b:2"), 1)


def test_cluster_from_tf_config():
    assert find_cluster(environment=config({"worker": TWO}, index=1)) == Cluster(("a:1", "b:2"), 1)


@pytest.mark.parametrize(("kind", "index", "expected"), [("chief", 0, 0), ("worker", 0, 1)])
def test_tf_config_chief_is_the_first_worker(kind, index, expected):
    found = find_cluster(environment=config({"worker": ["b:2"], "chief": ["a:1"]}, kind, index))
    assert found == Cluster(("a:1", "b:2"), expected)


def test_cluster_flags_override_tf_config():
    assert find_cluster(TWO, 0, config({"worker": ["c:3", "d:4"]})).workers == ("a:1", "b:2")


@pytest.mark.parametrize(
    "environment", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": "{}"}, config({"worker": ["a:1"]})]
)
def test_single_process_has_no_cluster(environment):
    assert find_cluster(environment=environment) is None


def test_tf_config_roundtrip():
    cluster = Cluster(("a:1", "[::1]:2"), 1)
    assert find_cluster(environment={"TF_CONFIG": cluster.tf_config()}) == cluster
    assert cluster.address(1) == ("::1", 2)


@pytest.mark.parametrize(
    ("workers", "index", "message"),
    [
        (TWO, None, "--workers and --worker_index: expected both or neither"),
        (None, 1, "--workers and --worker_index: expected both or neither"),
        (["a:1", "b"], 0, "--workers: found 'b', expected host:port"),
        (["a:1", "b:65536"], 0, "--workers: found 'b:65536', expected host:port"),
        (["a:1", ":2"], 0, "--workers: found ':2', expected host:port"),
        (["a:1", "a:1"], 0, "--workers: a:1 is given twice"),
        (TWO, 2, "--workers: worker 2 was requested of 2; expected 0 to 1"),
    ],
)
def test_invalid_cluster_flags_are_refused(workers, index, message):
    with pytest.raises(OptionsError) as error:
        find_cluster(workers, index, {})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"TF_CONFIG": "{"}, "TF_CONFIG: Expecting property name"),
        ({"TF_CONFIG": "[]"}, "TF_CONFIG: 'list' object"),
        (config({"worker": TWO, "ps": ["c:3"]}), "TF_CONFIG: the cluster has the job ps"),
        (config({"worker": TWO}, index=2), "TF_CONFIG: task 2 of the job worker"),
        (config({"worker": TWO}, "chief"), "TF_CONFIG: task 0 of the job chief"),
        (config({"worker": ["a:1", 7]}), "TF_CONFIG: found 7, expected host:port"),
        (config({"worker": ["a:1", f"b:{'1' * 5_000}"]}), "TF_CONFIG: found 'b:111"),
        (config({"worker": TWO}, []), "TF_CONFIG: found the task {'type': [], 'index': 0}"),
        (config({"worker": TWO}, {}), "TF_CONFIG: found the task {'type': {}, 'index': 0}"),
        (config({"worker": TWO}, index=1.9), "TF_CONFIG: found the task"),
        (config({"worker": TWO}, index=True), "TF_CONFIG: found the task"),
        (config({"worker": TWO}, index=float("inf")), "TF_CONFIG: found the task"),
        (config({"worker": TWO}, index="x"), "TF_CONFIG: invalid literal"),
        ({"TF_CONFIG": "[" * 100_000}, "TF_CONFIG: nested too deeply"),
    ],
)
def test_invalid_tf_config_is_refused(environment, message):
    with pytest.raises(OptionsError) as error:
        find_cluster(environment=environment)
    assert message in str(error.value) and len(str(error.value)) < 400
