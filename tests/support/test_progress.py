"""Lines about the progress of long work."""

from bilm.support import progress as module
from bilm.support.progress import Progress


def test_rate_leaves_out_the_first_units(log, monkeypatch):
    """A program compiles before the first units: they would promise days."""
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    bar = Progress("scoring", "sentences", 1_000)
    for now in (60.0, 64.0, 72.0, 76.0, 84.0):  # noqa: B007 (the clock reads it)
        bar.add(100)
    assert log.messages == [
        "scoring: 300 sentences, 17 per second, 0:00:42 left",
        "scoring: 500 sentences, 17 per second, 0:00:30 left",
    ]
