"""SIGKILL at random moments: outputs are equal and no temporary files remain."""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import kill_outputs


def test_vocabulary_is_complete_after_sigkill(tmp_path):
    command = kill_outputs.vocab(tmp_path)
    expected = kill_outputs.undisturbed(command, tmp_path / "undisturbed")
    assert set(expected.digests) == {"v"}
    hits = sum(
        kill_outputs.killed(command, tmp_path / f"out{k}", expected, 3, random.Random(k))
        for k in range(2)
    )
    assert hits >= 2  # others may come just after the end
