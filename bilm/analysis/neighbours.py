"""A picture of the usages that are most similar to a few usages of the same word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bilm.analysis import pictures
from bilm.analysis.maps import context_of
from bilm.analysis.pictures import PALETTE, drawing, monospace, plain
from bilm.analysis.usages import Usages
from bilm.errors import OptionsError
from bilm.support.imports import optional

FONT = 8.0  # points
CHARACTER = pictures.CHARACTER * FONT / 72  # inches
LINE = 0.19  # inches
CONTEXT = 40  # characters to each side of the word
NUMBER, BAR = 0.45, 0.9  # inches: width of the similarity, and of a bar for similarity 1


def draw_neighbours(
    usages: Usages,
    rows: Sequence[int],
    output: str | Path,
    n: int = 5,
    layer: int | None = None,
) -> None:
    """Draw a block for each chosen usage: its sentence, and below it the most similar usages.

    The word is in the middle of each line, as in a concordance. A bar and a number at the left
    state the cosine of the vectors.

    Args:
        usages: the usages of a word.
        rows: numbers of the chosen usages.
        output: picture; the ending .png, .svg or .pdf selects its form.
        n: maximum number of similar usages per block.
        layer: number of the layer; None for the highest.
    Raises: OptionsError for another ending, or a row or layer that does not exist.
    """
    if not len(rows):
        raise OptionsError("no usage is chosen")
    near = [usages.nearest(row, n, layer) for row in rows]
    blocks = [(usages.frame.iloc[row], own) for row, own in zip(rows, near, strict=True)]
    lines = [context_of(row, CONTEXT) for head, near in blocks for row in (head, *_rows(near))]
    before = max(len(text) for text, _, _ in lines)
    rest = max(len(word) + len(after) for _, word, after in lines)
    width = NUMBER + BAR + (before + rest + 4) * CHARACTER + 0.2
    n_lines = sum(len(near) + 1.7 for _, near in blocks)
    with drawing(output, width, n_lines * LINE + 0.25) as figure:
        page = _Page(figure, before)
        y = 0.15
        for head, near in blocks:
            page.band(y)
            page.line(y, context_of(head, CONTEXT), True)
            y += LINE * 1.1
            for row in _rows(near):
                page.similarity(y, row["similarity"])
                page.line(y, context_of(row, CONTEXT), False)
                y += LINE
            y += LINE * 0.6


def _rows(frame: Any) -> list[dict[str, Any]]:
    return frame.to_dict("records")


class _Page:
    """Writes lines on a figure; places are in inches from the left and from the top.

    Args:
        figure: a figure of matplotlib.
        before: maximum number of characters before the word.
    """

    def __init__(self, figure: Any, before: int):
        self._figure = figure
        self._width, self._height = figure.get_size_inches()
        self._middle = NUMBER + BAR + (before + 2) * CHARACTER + 0.1

    def _text(self, x: float, y: float, text: str, **more: Any) -> None:
        place = x / self._width, 1 - (y + LINE / 2) / self._height
        more = {"family": monospace(), "fontsize": FONT, "va": "center", **more}
        self._figure.text(*place, plain(text), **more)

    def _bar(self, x: float, y: float, width: float, height: float, color: str) -> None:
        patches = optional("matplotlib.patches", "analysis", "pictures")
        corner = x / self._width, 1 - (y + (LINE + height) / 2) / self._height
        self._figure.add_artist(
            patches.Rectangle(
                corner, width / self._width, height / self._height, color=color, linewidth=0,
                zorder=-1, transform=self._figure.transFigure,
            )
        )  # fmt: skip

    def band(self, y: float) -> None:
        """Draw the background of the first line of a block."""
        self._bar(0, y, self._width, LINE * 1.05, "#e8eef4")

    def line(self, y: float, parts: tuple[str, str, str], is_head: bool) -> None:
        """Write a sentence with the word in the middle."""
        before, word, after = parts
        weight = "bold" if is_head else "normal"
        end = self._middle + (len(word) + 1) * CHARACTER
        self._text(self._middle - CHARACTER, y, before, ha="right", fontweight=weight)
        self._text(self._middle, y, word, color=PALETTE[1], fontweight="bold")
        self._text(end, y, after, fontweight=weight)

    def similarity(self, y: float, value: float) -> None:
        """Draw the similarity as a number and a bar."""
        self._text(0.1, y, f"{value:.2f}")
        self._bar(NUMBER, y, BAR * max(0.0, min(1.0, value)), LINE * 0.5, PALETTE[4])
