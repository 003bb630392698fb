"""`bilm info RUN --plot`: the curves of a training run."""

import pytest
from command_runs import assert_fails
from tiny_runs import tiny_run

from bilm.analysis.pictures import plot_history
from bilm.training.history import COLUMNS

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.clients


def row(step, restart=0, **values):
    return dict.fromkeys(COLUMNS, "") | {"step": str(step), "restart": str(restart)} | values


def test_curves_show_what_the_history_contains(tmp_path):
    rows = [
        row(10, loss_forward="5.5", loss_backward="5.6", learning_rate="0.1"),
        row(20, heldout_perplexity="240.5"),
        row(30, restart=1, loss_forward="5.0", learning_rate="0.2"),
    ]
    plot_history(rows, tmp_path / "curves.svg", "run $5")
    drawn = (tmp_path / "curves.svg").read_text("utf-8")
    for text in ("loss_forward", "heldout_perplexity", "learning_rate", "run $5"):
        assert text in drawn
    assert "continued after a restart" in drawn
    assert "tokens/s" not in drawn  # no such value
    plot_history(rows[:2], tmp_path / "curves.svg")
    assert "restart" not in (tmp_path / "curves.svg").read_text("utf-8")


def test_info_plots_a_run_and_refuses_other_models(tmp_path, run_here):
    files = "--plot", tmp_path / "curves.png"
    run_here("bilm info", tiny_run("words"), *files)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    refused = run_here("bilm info", "novels-en", "--plot", tmp_path / "other.png")
    assert_fails(refused, "--plot: novels-en is not a run")
    assert not (tmp_path / "other.png").exists()
