"""SIGKILL at random moments, by the driver in benchmarks: equal losses, equal weights."""

import random

import kill
import pytest
from tiny_runs import REGULARIZED


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, REGULARIZED], ids=["default", "regularized"])
def test_resume_after_sigkill_is_bit_identical(tmp_path, changes):
    training = kill.Training(tmp_path)
    few_layers = {"lstm": kill.OPTIONS["lstm"] | {"n_layers": 1}, "unroll_steps": 4}
    training.write_input(kill.OPTIONS | few_layers | changes)
    timing = training.undisturbed(tmp_path / "straight")
    n_kills = training.killed(tmp_path / "killed", timing, 5, random.Random(1))
    assert n_kills >= 4  # one may come just after the end
    assert training.largest_difference(tmp_path / "straight", tmp_path / "killed") == 0
