"""Pictures by matplotlib: ranked words with intervals."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bilm.errors import OptionsError
from bilm.support.files import protect, replacing
from bilm.support.imports import optional

if TYPE_CHECKING:
    import pandas

ENDINGS = (".png", ".svg", ".pdf")
# Okabe and Ito's colours, which colour-blind readers can distinguish; yellow is left out.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
MARKS = ("o", "s", "^", "D", "v", "P", "X")  # also distinct in grey
# Fonts for characters that matplotlib's DejaVu lacks, if they are installed.
FALLBACK = (
    "Noto Sans Mono CJK JP", "Noto Sans CJK JP", "Noto Sans CJK SC", "Hiragino Sans", "PingFang SC",
    "Noto Sans Arabic", "Noto Sans Devanagari", "Noto Sans Symbols2", "Unifont",
)  # fmt: skip
DPI = 150
MAX_WORDS = 60  # in one picture
LEVEL = 0.05  # of adjusted p-values
# Descriptions of the measures, with places for the names of both texts.
IN_WORDS = {
    "apd": "mean cosine distance between a usage in {} and a usage in {}",
    "prt": "cosine distance of the mean vectors of {} and {}, less that of random splits",
}
CHANGED, SAME = "#b2182b", "#4d4d4d"  # distinct for colour-blind readers and in grey


def plain(text: str) -> str:
    """Return text that matplotlib draws as it is; dollars would start a formula."""
    return text.replace("$", r"\$")


@contextmanager
def drawing(output: str | Path, width: float, height: float) -> Iterator[Any]:
    """Yield an empty figure, and save it when the block ends without an error.

    Args:
        output: the picture; its ending selects the form.
        width, height: size in inches.
    Raises: OptionsError for an unknown ending; DataError if the output belongs to a model;
        MissingExtraError without matplotlib.
    """
    ending = Path(output).suffix.lower()
    if ending not in ENDINGS:
        raise OptionsError(f"{output}: unknown ending; expected {', '.join(ENDINGS)}")
    protect(output)
    matplotlib = optional("matplotlib", "analysis", "pictures")
    figures = optional("matplotlib.figure", "analysis", "pictures")
    fonts = optional("matplotlib.font_manager", "analysis", "pictures").fontManager
    installed = {font.name for font in fonts.ttflist}
    others = [name for name in FALLBACK if name in installed]
    settings = {
        "svg.fonttype": "none", "pdf.fonttype": 42, "font.size": 10,
        "font.family": ["DejaVu Sans", *others], "font.monospace": ["DejaVu Sans Mono", *others],
    }  # fmt: skip
    with matplotlib.rc_context(settings):
        figure = figures.Figure(figsize=(width, height), layout="constrained")
        yield figure
        with replacing(output) as temporary:
            figure.savefig(temporary, dpi=DPI, format=ending[1:])


def draw_change(frame: pandas.DataFrame, output: str | Path, measure: str = "apd") -> None:
    """Draw the words of a table, of its last layer, ranked by a measure, with their intervals.

    The numbers of compared usages in both texts follow each word. Words whose adjusted p-value is
    at most 0.05 are filled red. Of more than `MAX_WORDS` words, the first ones are drawn.

    Args:
        frame: result of `measure_change`.
        output: picture; the ending .png, .svg or .pdf selects its form.
        measure: measure that ranks the words.
    Raises: OptionsError for another ending.
    """
    number = frame["layer"].iloc[-1]
    ranked = frame[frame["layer"] == number].dropna(subset=measure)
    ranked = ranked.sort_values(measure, ascending=False)
    own = ranked.head(MAX_WORDS).iloc[::-1]  # the first word is at the top
    values, q = own[measure], own[f"{measure}_q"]
    low, high = (own[f"{measure}_{end}"].fillna(values) for end in ("low", "high"))
    errors = np.maximum([values - low, high - values], 0)
    with drawing(output, 6.5, 1.3 + 0.24 * len(own)) as figure:
        axes = figure.subplots()
        for chosen, color, fill, label in (
            (q <= LEVEL, CHANGED, CHANGED, f"adjusted p at most {LEVEL:g}"),
            (~(q <= LEVEL), SAME, "white", f"adjusted p above {LEVEL:g}"),
        ):
            if chosen.any():
                axes.errorbar(
                    values[chosen], np.flatnonzero(chosen), xerr=errors[:, chosen], fmt="o",
                    color=color, markerfacecolor=fill, markersize=5, elinewidth=1.4, label=label,
                )  # fmt: skip
        columns = [name for name in frame if name.startswith("usages_")]
        counts = own[columns].astype(str).agg(" + ".join, axis=1)
        few = own["cite"].str.startswith("fewer").map({True: ", few", False: ""})
        words = own["word"] + " (" + counts + few + ")"
        if f"{measure}_same" in own:
            label = "mean over random splits"
            axes.plot(own[f"{measure}_same"], range(len(own)), "|", color=SAME, label=label)
        axes.set_yticks(range(len(own)), list(map(plain, words)))
        axes.set_ylim(-0.8, len(own) - 0.2)
        axes.grid(axis="y", color="#e6e6e6", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        a, b = (plain(name.removeprefix("usages_")) for name in columns)
        vectors = "mean of the LSTM layers" if number == "mean" else f"layer {number}"
        label = f"{measure}, {vectors}: {IN_WORDS[measure].format(a, b)}"
        axes.set_title(f"word (usages in {a} + {b})", loc="left", fontsize=10)
        axes.set_xlabel(textwrap.fill(label, 60), fontsize=9)
        if q.notna().any():
            figure.legend(loc="outside lower right", frameon=False, ncols=2, fontsize=9)
