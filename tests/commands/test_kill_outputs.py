"""SIGKILL at random moments, by the driver in benchmarks: equal files, nothing left over."""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import kill_outputs


def test_a_vocabulary_whose_building_was_killed(tmp_path):
    command = kill_outputs.build_vocab(tmp_path)
    expected = kill_outputs.undisturbed(command, tmp_path / "undisturbed")
    assert set(expected.digests) == {"v", "c"}
    hits = sum(
        kill_outputs.killed(command, tmp_path / f"out{k}", expected, 3, random.Random(k))
        for k in range(2)
    )
    assert hits >= 4  # some may come just after the end
