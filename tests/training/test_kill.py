"""SIGKILL at random moments, by the driver in benchmarks: equal losses, equal weights."""

import random
import sys
from pathlib import Path

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import kill
from tiny_runs import REGULARIZED


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        REGULARIZED,
    ],
    ids=["default", "regularized"],
)
def test_resume_after_sigkill_is_bit_identical(tmp_path, changes):
    settings = 40, 2, 1  # steps, steps between checkpoints, replicas
    few_layers = {"lstm": kill.OPTIONS["lstm"] | {"n_layers": 1}, "unroll_steps": 4}
    kill.write_input(tmp_path, kill.OPTIONS | few_layers | changes)
    seconds = kill.finish(kill.start(tmp_path, tmp_path / "straight", *settings))
    n_kills = kill.killed_run(tmp_path, tmp_path / "killed", settings, seconds, 5, random.Random(1))
    found = kill.compare(tmp_path / "straight", tmp_path / "killed", 40, n_kills)
    assert found.n_kills >= 4  # one may come just after the end
    assert (found.losses, found.values) == (0, 0)
