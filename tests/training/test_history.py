"""`history.csv`: the curve of a run, exact under resume."""

import pytest
from tiny_runs import HELDOUT, WORDS, before_last_save, run

from bilm.training.history import COLUMNS, read_history


def rows_of(folder):
    """The rows of a run's history without the speed, which differs between equal runs."""
    rows = read_history(folder / "history.csv")
    return [{k: v for k, v in row.items() if k != "tokens_per_s"} for row in rows]


@pytest.mark.parametrize("log_steps", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_history_of_a_resumed_run_equals_that_of_a_straight_run(tmp_path, log_steps):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    settings = {"heldout": HELDOUT, "eval_steps": 2, "log_steps": log_steps}
    settings["changes"] = WORDS | {"bidirectional": True}
    run(straight, 6, checkpoint_steps=3, **settings)
    before_last_save(straight, 6, killed)  # its history is ahead of its checkpoint
    run(killed, 6, checkpoint_steps=3, **settings)
    assert rows_of(killed) == rows_of(straight)
    rows = read_history(killed / "history.csv")
    assert int(rows[-1]["step"]) == 6 and tuple(rows[0]) == COLUMNS
    measured = [row for row in rows if row["heldout_perplexity"]]
    assert [int(row["step"]) for row in measured] == [2, 4, 6]
    assert bool(rows[0]["tokens_per_s"]) == (log_steps == 2)  # the first step compiled the graph
    assert all(float(rows[-1][name]) > 0 for name in COLUMNS)
    assert sorted(path.name for path in straight.iterdir() if path.is_dir()) == ["best"]


def test_history_has_rows_at_saves_without_a_report(tmp_path):
    run(tmp_path, 5, checkpoint_steps=2, log_steps=100)
    assert [row["step"] for row in rows_of(tmp_path)] == ["2", "4", "5"]


def test_history_that_is_damaged_is_replaced_with_a_warning(a_run, log):
    header = ",".join(COLUMNS).encode()
    n = len(COLUMNS)
    rows = b"3" + b"," * n, b"3" + b"," * (n - 2), b"3" + b",x" * (n - 1)  # too many, too few, text
    damaged = (header + b"\n" + row + b"\n" for row in rows)
    for content in (b"a,b\n1,2\n", b"\xff", b"step\nx\n", *damaged):
        (a_run / "history.csv").write_bytes(content)
        assert not read_history(a_run / "history.csv")
        assert "history.csv: not the history of a run" in log.text
        log.clear()
    run(a_run, 4)
    assert [row["step"] for row in rows_of(a_run)] == ["4"]
