"""The picture of a training run: loss, perplexity, learning rate and speed by step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bilm.analysis.pictures import PALETTE, drawing, plain
from bilm.errors import DataError

# Label of each panel, whether its axis is logarithmic, and its curves: label, column of
# `history.csv`.
PANELS: tuple[tuple[str, bool, dict[str, str]], ...] = (
    ("training loss, nats", False, {"forward": "loss_forward", "backward": "loss_backward"}),
    ("held-out perplexity", True, {
        "forward": "heldout_forward", "backward": "heldout_backward", "mean": "heldout_perplexity",
    }),
    ("learning rate", False, {"": "learning_rate"}),
    ("tokens/s", False, {"": "tokens_per_s"}),
)  # fmt: skip
Points = list[tuple[int, float]]  # step, value
WIDTH, PANEL_HEIGHT = 8.0, 2.1  # inches


def plot_history(rows: Sequence[dict[str, str]], output: str | Path, title: str = "") -> None:
    """Draw the curves of a run. Dashed lines mark where the run continued after a restart.

    Args:
        rows: result of `bilm.training.history.read_history`.
        output: picture, .png, .svg or .pdf.
        title: text above the panels.
    Raises: DataError without rows; OptionsError for another ending; MissingExtraError without
        matplotlib.
    """
    if not rows:
        raise DataError(f"{output}: the run has no history yet, expected at least one report")
    panels = [(name, log, _curves(rows, curves)) for name, log, curves in PANELS]
    panels = [panel for panel in panels if panel[2]]
    restarts = _restarts(rows)
    with drawing(output, WIDTH, PANEL_HEIGHT * len(panels) + 0.6, layout="constrained") as figure:
        figure.suptitle(plain(title))
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axis, (name, is_log, curves) in zip(axes, panels, strict=True):
            _draw(axis, name, is_log, curves)
            for step in restarts:
                axis.axvline(step, color="0.5", linestyle="--", linewidth=0.8, zorder=0)
        axes[-1].set_xlabel("step" + " (dashed: continued after a restart)" * bool(restarts))


def _draw(axis: Any, name: str, is_log: bool, curves: dict[str, Points]) -> None:
    """Draw the curves of a panel."""
    for color, (label, points) in zip(PALETTE, curves.items(), strict=False):
        steps, values = zip(*points, strict=True)
        mark = "o" if len(points) < 40 else None
        axis.plot(steps, values, color=color, label=label or None, marker=mark, markersize=3)
    axis.set_ylabel(name)
    axis.grid(True, color="0.9")
    if is_log:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("{x:g}")
    if len(curves) > 1:
        axis.legend(frameon=False)


def _curves(rows: Sequence[dict[str, str]], columns: dict[str, str]) -> dict[str, Points]:
    """Return the points of each curve that has values."""
    found = {
        label: [(int(row["step"]), float(row[column])) for row in rows if row[column]]
        for label, column in columns.items()
    }
    return {label: points for label, points in found.items() if points}


def _restarts(rows: Sequence[dict[str, str]]) -> list[int]:
    """Return the first step reported after each restart."""
    found: dict[str, int] = {}
    for row in rows:
        found.setdefault(row["restart"] or "0", int(row["step"]))
    return [step for restart, step in found.items() if int(restart)]
