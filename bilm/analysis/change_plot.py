"""A picture of changed words, ranked, with intervals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bilm.analysis.pictures import drawing, plain
from bilm.errors import OptionsError

if TYPE_CHECKING:
    import pandas

MAX_WORDS = 60  # in one picture
LEVEL = 0.05  # of adjusted p-values
CHANGED, SAME = "#b2182b", "#4d4d4d"  # distinct for colour-blind readers and in grey


def draw_change(
    frame: pandas.DataFrame,
    output: str | Path,
    measure: str = "apd",
    layer: int | None = None,
    title: str | None = None,
) -> None:
    """Draw the words of a table, ranked by a measure, with their intervals.

    Words whose adjusted p-value is at most 0.05 are filled red. Of more than `MAX_WORDS` words, the
    first ones are drawn.

    Args:
        frame: result of `measure_change`.
        output: picture; the ending .png, .svg or .pdf selects its form.
        measure: column that ranks the words.
        layer: number of the layer; None for the highest of the table.
        title: title; None for one that names measure and layer.
    Raises: OptionsError for another ending, or if the frame lacks measure or layer.
    """
    if measure not in frame:
        raise OptionsError(f"the table has no column {measure}")
    number = int(frame["layer"].max()) if layer is None else layer
    own = frame[(frame["layer"] == number) & frame[measure].notna()]
    if own.empty:
        raise OptionsError(
            f"no word has a value of {measure} in layer {number}; each needs two usages in both "
            "groupings"
        )
    own = own.sort_values(measure, ascending=False)
    n_words = len(own)
    own = own.head(MAX_WORDS).iloc[::-1]  # the first word is at the top
    with drawing(output, 6.5, 1.3 + 0.24 * len(own), layout="constrained") as figure:
        axes = figure.subplots()
        values, places = own[measure].to_numpy(), np.arange(len(own))
        adjusted = own.get(f"{measure}_q", own[measure] * np.nan)
        changed, tested = (adjusted <= LEVEL).to_numpy(), adjusted.notna().any()
        low = own.get(f"{measure}_low", own[measure]).fillna(own[measure]).to_numpy()
        high = own.get(f"{measure}_high", own[measure]).fillna(own[measure]).to_numpy()
        for chosen, color, fill, label in (
            (changed, CHANGED, CHANGED, f"adjusted p at most {LEVEL:g}"),
            (~changed, SAME, "white", f"adjusted p above {LEVEL:g}"),
        ):
            if not chosen.any():
                continue
            errors = np.maximum([values[chosen] - low[chosen], high[chosen] - values[chosen]], 0)
            axes.errorbar(
                values[chosen], places[chosen], xerr=errors, fmt="o", color=color,
                markerfacecolor=fill, markersize=5, elinewidth=1.4, capsize=0, label=label,
            )  # fmt: skip
        axes.set_yticks(places, list(map(plain, own["word"])))
        axes.set_ylim(-0.8, len(own) - 0.2)
        axes.grid(axis="y", color="#e6e6e6", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel(f"{measure}, layer {number}")
        if n_words > len(own):
            title = title or f"the first {len(own)} of {n_words:,} words"
        if title:
            axes.set_title(title, fontsize=10, loc="left")
        if tested:
            figure.legend(
                *axes.get_legend_handles_labels(), loc="outside lower right", frameon=False, ncols=2
            )
