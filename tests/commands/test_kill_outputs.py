"""SIGKILL at random moments: outputs are equal and no temporary files remain."""

import random

import kill


def test_vocabulary_is_complete_after_sigkill(tmp_path):
    command = kill.Output("vocab", tmp_path)
    timing = command.undisturbed(tmp_path / "undisturbed")
    expected = kill.digests(tmp_path / "undisturbed")
    assert set(expected) == {"v"}
    hits = command.killed(tmp_path / "out", timing, 3, random.Random(149), expected)
    # The first kill comes after a quarter of the start; others may come after a faster end.
    assert hits >= 1
