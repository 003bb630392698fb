"""Pictures by matplotlib: maps of usages, ranked words with intervals, the curves of a run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bilm.errors import OptionsError
from bilm.studies.usages.change import CHANGED, FEW, groupings_of, ranked
from bilm.studies.usages.maps import N_CLUSTERS, PALETTE, cluster_names, usage_map
from bilm.studies.usages.settings import MEASURES
from bilm.studies.usages.usages import Usages
from bilm.support import HISTORY, optional, replacing

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")
MARKS = ("o", "s", "^", "D", "v", "P", "X")  # also distinct in grey
# Fonts for characters that matplotlib's DejaVu lacks, if they are installed.
FALLBACK = (
    "Noto Sans Mono CJK JP", "Noto Sans CJK JP", "Noto Sans CJK SC", "Hiragino Sans", "PingFang SC",
    "Noto Sans Arabic", "Noto Sans Devanagari", "Noto Sans Symbols2", "Unifont",
)  # fmt: skip
DPI = 150
# Of maps: size in inches, style of points, and their areas together and alone, in square points.
WIDTH, HEIGHT = 7.4, 5.4
POINT = {"alpha": 0.6, "linewidths": 0.3, "edgecolors": "white"}
ALL_POINTS, SMALLEST, LARGEST = 9000, 6, 60
# Of pictures of change:
MAX_WORDS = 60
INTERVAL = {"fmt": "o", "markersize": 5, "elinewidth": 1.4}
COLORS = {CHANGED: "#b2182b", FEW: "#a0a0a0"}  # distinct for colour-blind readers and in grey
SAME = "#4d4d4d"  # of other answers


@contextmanager
def drawing(output: str | Path | None, width: float, height: float) -> Iterator[Figure]:
    """Yield an empty figure of a size in inches, which notebooks display, and save it, unless
    `output` is None, when the block ends without an error. Raises: OptionsError for an unknown
    ending."""
    ending = ".png" if output is None else Path(output).suffix.lower()
    if ending not in ENDINGS:
        raise OptionsError(f"{output}: unknown ending; expected {', '.join(ENDINGS)}")
    matplotlib = optional("matplotlib", "analysis", "pictures")
    figures = optional("matplotlib.figure", "analysis", "pictures")
    installed = optional("matplotlib.font_manager", "analysis", "pictures").get_font_names()
    others = [name for name in FALLBACK if name in installed]
    settings = {
        "text.parse_math": False,  # dollars do not start a formula
        "svg.fonttype": "none",  # text stays text
        "pdf.fonttype": 42,
        "font.size": 10,
        "font.family": ["DejaVu Sans", *others],
        "font.monospace": ["DejaVu Sans Mono", *others],
    }
    with matplotlib.rc_context(settings):
        figure = figures.Figure(figsize=(width, height), layout="constrained")

        def as_png() -> bytes:
            file = BytesIO()
            figure.savefig(file, dpi=DPI, format="png")
            return file.getvalue()

        figure._repr_png_ = as_png  # without pyplot, IPython knows no other way
        yield figure
        if output is not None:
            with replacing(output) as temporary:
                figure.savefig(temporary, dpi=DPI, format=ending[1:])


def draw_map(
    usages: Usages,
    output: str | Path | None = None,
    layer: int | None = None,
    color: str | None = None,
    n_clusters: int = N_CLUSTERS,
    seed: int = 0,
) -> Figure:
    """Draw a map of the usages of words, and return the figure.

    Args:
        output: picture; the ending .png, .svg or .pdf selects its form. None writes no file.
        color: "grouping", "cluster" or "word"; None for words if there are several, or "grouping".
        layer, n_clusters, seed: see `usage_map`.
    Raises: OptionsError for another ending, and as `usage_map` does.
    """
    frame = usage_map(usages, layer, n_clusters, seed)
    color = color or ("word" if len(usages.words) > 1 else "grouping")
    number = max(usages.layers) if layer is None else layer
    size = float(np.clip(ALL_POINTS / len(frame), SMALLEST, LARGEST))
    with drawing(output, WIDTH, HEIGHT) as figure:
        axes = figure.subplots()
        names = cluster_names(frame)
        for k, (group, rows) in enumerate(frame.groupby(color, sort=color == "cluster")):
            style = {"color": PALETTE[k % len(PALETTE)], "marker": MARKS[k % len(MARKS)]}
            name = names[group] if color == "cluster" else group
            label = f"{name} ({len(rows):,})"
            axes.scatter(rows["x"], rows["y"], s=size, label=label, **style, **POINT)
        axes.set(xticks=[], yticks=[])
        axes.margins(0.08)
        axes.set_title(f"{', '.join(usages.words)}, layer {number}", loc="left")
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0)
    return figure


def draw_change(
    frame: pandas.DataFrame, output: str | Path | None = None, measure: str = "apd"
) -> Figure:
    """Draw the first `MAX_WORDS` words of a result of `measure_change`, of its last layer, ranked
    by a measure, with their intervals; those with few usages are below the others. `output`: see
    `draw_map`."""
    rows = ranked(frame, measure).dropna(subset=measure).head(MAX_WORDS)
    is_few = (rows["answer"] == FEW).to_numpy()
    # The first word is at the top, and a gap is above those with few usages.
    places = -np.arange(len(rows)) - is_few  # words
    with drawing(output, 6.5, 1.3 + 0.24 * (len(rows) + 1)) as figure:
        axes = figure.subplots()
        values = rows[measure]
        lengths = [values - rows[f"{measure}_low"], rows[f"{measure}_high"] - values]
        errors = np.nan_to_num(lengths).clip(0)  # 2, words
        for answer in rows["answer"].unique():
            chosen = (rows["answer"] == answer).to_numpy()
            color = COLORS.get(answer, SAME)
            fill = color if answer == CHANGED else "white"
            style = {"color": color, "markerfacecolor": fill, "label": answer, **INTERVAL}
            axes.errorbar(values[chosen], places[chosen], xerr=errors[:, chosen], **style)
        axes.plot(rows[f"{measure}_same"], places, "|", color=SAME, label="without change")

        # Each word with the numbers of its usages
        groupings = groupings_of(frame)
        counts = rows[[f"usages_{name}" for name in groupings]].astype(str).agg(" + ".join, axis=1)
        axes.set_yticks(places, rows["word"] + " (" + counts + ")")

        # The names of both texts, and what the measure is
        axes.set_title(f"word (usages in {' + '.join(groupings)})", loc="left", fontsize=10)
        layer = frame["layer"].iloc[-1]
        vectors = "mean of the LSTM layers" if layer == "mean" else f"layer {layer}"
        label = f"{measure}, {vectors}: {MEASURES[measure].format(*groupings)}"
        axes.set_xlabel(textwrap.fill(label, 60), fontsize=9)
        axes.set_ylim(min(places, default=0) - 0.8, 0.8)
        axes.grid(axis="y", color="#e6e6e6", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower right", frameon=False, ncols=2, fontsize=9)
    return figure


def draw_run(folder: str | Path, output: str | Path | None = None) -> Figure:
    """Draw held-out perplexity and mean training loss over the steps of the run in a folder.
    `output`: see `draw_map`."""
    pandas = optional("pandas", "analysis", "pictures of runs")
    history = pandas.read_csv(Path(folder) / HISTORY, index_col="step")
    loss = history[["loss_forward", "loss_backward"]].mean(axis=1)
    curves = {"held-out perplexity": history["heldout_perplexity"], "training loss": loss}
    with drawing(output, WIDTH, HEIGHT) as figure:
        rows = figure.subplots(len(curves), sharex=True)
        for axes, (name, values) in zip(rows, curves.items(), strict=True):
            known = values.dropna()
            axes.plot(known.index, known, ".-", color=PALETTE[0])
            axes.set_ylabel(name)
            axes.grid(color="#e6e6e6", linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
        rows[-1].set_xlabel("step")
    return figure
