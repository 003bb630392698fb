"""Worker processes on this machine, by the real command, against one process of their replicas."""

import signal
import time

import numpy as np
import pytest
from tiny_runs import HELDOUT, REGULARIZED, VARIANTS, WORDS, assert_same_weights, run, tiny_run
from worker_runs import addresses, end_all, finish, log_file, start_worker, start_workers, wait_for

from bilm.language_model import BiLM
from bilm.storage.checkpoint import latest_checkpoint
from bilm.training.run_folder import RunFolder

SMALLEST = WORDS | {"share_embedding_softmax": True, "lstm": {"n_layers": 1}}
MUON = {"optimizer": "muon", "learning_rate": 0.01, "weight_decay": 0.05}
LONG = 100_000  # steps that no test waits for
SOON = 60  # seconds in which all must have ended


@pytest.fixture(autouse=True)
def no_process_remains():
    """A failed test leaves workers that would train on for hours."""
    yield
    end_all()


def assert_same(folder, other, tolerance=1e-6):
    """Two runs ended with the same weights and at the same place in the text."""
    assert_same_weights(folder, other, tolerance)
    one, two = latest_checkpoint(folder), latest_checkpoint(other)
    assert one.record.step == two.record.step and one.record.n_rows == two.record.n_rows
    for name, places in two.position.items():
        np.testing.assert_array_equal(one.position[name], places)


def measured(folder):
    return RunFolder(folder).read_measured()


@pytest.mark.slow
# Five iterations of Muon multiply the rounding of small singular values by up to 3.4^5.
@pytest.mark.parametrize(
    ("changes", "tolerance"), [(REGULARIZED, 1e-6), (MUON, 1e-5)], ids=["all options", "muon"]
)
def test_two_workers_equal_one_process_of_their_replicas(tmp_path, changes, tolerance):
    several, one, flags = tmp_path / "several", tmp_path / "one", {"n_steps": 4, "eval_steps": 2}
    changes = SMALLEST | changes
    several.mkdir()
    for name in (".lock", "heldout.txt"):  # of an interrupted command, for all workers
        (several / name).touch()
    lines = finish(start_workers(2, several, changes, **flags), several)
    assert "to export" in lines[0] and "writes the run's files and its log" in lines[1]
    run(one, 4, heldout=HELDOUT, n_replicas=2, changes=changes, eval_steps=2)
    assert_same(several, one, tolerance)
    assert measured(several)[0] == 4 and (several / "best").is_dir()
    assert measured(several)[1].mean == pytest.approx(measured(one)[1].mean, rel=tolerance)


@pytest.mark.cluster
@pytest.mark.parametrize(("n_workers", "tolerance"), [(2, 1e-6), (3, 1e-5)])
@pytest.mark.parametrize("variant", ["characters", "shared_softmax", "full_softmax"])
def test_several_workers_equal_one_process(tmp_path, variant, n_workers, tolerance):
    folder, changes = tmp_path / "several", VARIANTS.get(variant, WORDS | {"sample_softmax": False})
    finish(start_workers(n_workers, folder, changes, n_steps=40), folder)
    # The tests' process has two logical devices; this one has as many as there are workers.
    finish([start_one(tmp_path / "one", changes, n_workers, n_steps=40)], tmp_path / "one")
    assert_same(folder, tmp_path / "one", tolerance)
    expected = measured(tmp_path / "one")[1].mean
    assert measured(folder)[1].mean == pytest.approx(expected, rel=tolerance)


def start_one(folder, changes, n_replicas, **flags):
    """Start one process with some replicas."""
    return start_worker(0, [], folder, changes, cpu_replicas=n_replicas, **flags)


@pytest.mark.cluster
@pytest.mark.short
def test_resume_with_other_workers_and_replicas(tmp_path):
    changes, moved, still = WORDS | {"dropout": 0.1}, tmp_path / "moved", tmp_path / "still"
    for n_workers, n_steps in ((1, 3), (4, 6), (1, 9)):
        if n_workers == 1:
            started = [start_one(moved, changes, 4, n_steps=n_steps)]
        else:
            started = start_workers(n_workers, moved, changes, n_steps=n_steps)
        finish(started, moved)
        finish([start_one(still, changes, 4, n_steps=n_steps)], still)
    assert_same(moved, still)


@pytest.mark.cluster
def test_finetune_with_two_workers_equals_one_process(tmp_path):
    flags = {"model": tiny_run("words"), "n_steps": 4, "batch_size": 2}
    finish(start_workers(2, tmp_path / "several", None, **flags), tmp_path / "several")
    finish([start_one(tmp_path / "one", None, 2, **flags)], tmp_path / "one")
    assert_same(tmp_path / "several", tmp_path / "one")
    before, after = ("PERPLEXITY BEFORE = ", "PERPLEXITY AFTER = ")
    logs = [log_file(tmp_path / "several", k).read_text() for k in range(2)]
    assert all(line in logs[0] and line not in logs[1] for line in (before, after))


@pytest.mark.cluster
@pytest.mark.parametrize("dead", [pytest.param(0, marks=pytest.mark.short), 1])
def test_resume_after_sigkill_of_a_worker(tmp_path, dead):
    folder, flags = tmp_path / "run", {"n_steps": LONG, "checkpoint_steps": 5, "heldout": None}
    workers = addresses(2)
    started = [start_worker(k, workers, folder, WORDS, log_steps=1, **flags) for k in range(2)]
    wait_for(folder, "step 12 of")
    started[dead].kill()
    started[dead].wait()
    start = time.monotonic()
    assert started[1 - dead].wait(600) == 1
    assert time.monotonic() - start < SOON
    last = log_file(folder, 1 - dead).read_text().splitlines()[-1]
    assert f"error: worker {dead} ({workers[dead]}) ended without a message" in last
    there = latest_checkpoint(folder).record.step
    assert there >= 10
    finish(start_workers(2, folder, WORDS, **flags | {"n_steps": there + 3}), folder)
    run(tmp_path / "straight", there + 3, n_replicas=2)
    assert_same(folder, tmp_path / "straight")


MOMENTS = {  # what the chief logs, and flags
    "compiling": ("first step compiles", {}),
    "training": ("step 2 of", {"log_steps": 1}),
    "saving": ("step 2 of", {"checkpoint_steps": 1, "log_steps": 1}),
    "evaluating": ("step 2 of", {"eval_steps": 1, "log_steps": 1}),
}


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("name", "signalled"),
    [("training", [1]), pytest.param("training", [0], marks=pytest.mark.short)]
    + [(name, [k]) for name in MOMENTS if name != "training" for k in range(2)]
    + [("training", [0, 1])],
)
def test_sigterm_saves_the_run_and_ends_all_workers(tmp_path, name, signalled):
    folder, (moment, flags) = tmp_path / "run", MOMENTS[name]
    started = start_workers(2, folder, WORDS, n_steps=LONG, **flags)
    wait_for(folder, moment)
    for k in signalled:
        started[k].send_signal(signal.SIGTERM)
    finish(started, folder, status=130)
    log = log_file(folder, 0).read_text()
    assert "the same command continues the run" in log.splitlines()[-1]
    assert f"stopped at step {latest_checkpoint(folder).record.step}, saved" in log


@pytest.mark.cluster
def test_workers_whose_folder_is_not_shared_are_refused(tmp_path, monkeypatch):
    """Each has a checkpoint of the same step, of other weights."""
    build = BiLM.build
    folders, workers = [tmp_path / "0", tmp_path / "1"], addresses(2)
    for number, folder in enumerate(folders):

        def random_weights(self, *arguments, number=number):
            build(self, *arguments)
            self.softmax.bias.assign(self.softmax.bias + number)

        with monkeypatch.context() as patched:
            patched.setattr(BiLM, "build", random_weights)
            run(folder, 2, n_replicas=2, checkpoint_steps=2)
    flags = {"n_steps": 4, "heldout": None}
    started = [start_worker(k, workers, folders[k], WORDS, **flags) for k in range(2)]
    for process in started:
        assert process.wait(600) == 1
    for k, folder in enumerate(folders):
        last = log_file(folder, k).read_text().splitlines()[-1]
        assert f"worker 1 ({workers[1]}): SHA-256 of weights is" in last


@pytest.mark.cluster
@pytest.mark.parametrize("signalled", [0, 1])
def test_sigterm_while_the_strategy_is_made_ends_all(tmp_path, signalled):
    """TensorFlow must not replace what the signal does in any moment before the first step."""
    folder, flags = tmp_path / "run", {"n_steps": LONG, "join_minutes": 0.5}
    started = start_workers(2, folder, WORDS, **flags)
    wait_for(folder, "joined; ", index=1)
    started[signalled].send_signal(signal.SIGTERM)
    assert started[signalled].wait(600) == -signal.SIGTERM
    assert started[1 - signalled].wait(600) == 1
