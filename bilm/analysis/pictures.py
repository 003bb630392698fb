"""What all pictures share: endings, colours, fonts, and saving."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from absl import logging

from bilm.errors import OptionsError
from bilm.support.files import replacing
from bilm.support.imports import optional
from bilm.support.model_files import protect

ENDINGS = (".png", ".svg", ".pdf")
# Okabe and Ito's colours, which colour-blind readers can distinguish; yellow is left out.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
MARKS = ("o", "s", "^", "D", "v", "P", "X")  # also distinct in grey
MONOSPACE, SANS = "DejaVu Sans Mono", "DejaVu Sans"  # part of matplotlib
CHARACTER = 0.602  # width of a character of DejaVu Sans Mono, as a share of the font size
# Fonts for characters that DejaVu lacks, if they are installed.
FALLBACK = (
    "Noto Sans Mono CJK JP", "Noto Sans CJK JP", "Noto Sans CJK SC", "Hiragino Sans", "PingFang SC",
    "Noto Sans Arabic", "Noto Sans Devanagari", "Noto Sans Symbols2", "Unifont",
)  # fmt: skip
DPI = 150


def check_ending(output: str | Path) -> None:
    """Raise OptionsError for an ending that is not in `ENDINGS`."""
    if Path(output).suffix.lower() not in ENDINGS:
        raise OptionsError(f"{output}: unknown ending; expected {', '.join(ENDINGS)}")


def plain(text: str) -> str:
    """Return text that matplotlib draws as it is; dollars would start a formula."""
    return text.replace("$", r"\$")


@contextmanager
def drawing(output: str | Path, width: float, height: float, **more: Any) -> Iterator[Any]:
    """Yield an empty figure, and save it when the block ends without an error.

    Args:
        output: the picture; its ending selects the form.
        width, height: size in inches.
        more: arguments of `matplotlib.figure.Figure`.
    Raises: OptionsError for an unknown ending; DataError if the output belongs to a model;
        MissingExtraError without matplotlib.
    """
    check_ending(output)
    protect(output)
    matplotlib = optional("matplotlib", "analysis", "pictures")
    figures = optional("matplotlib.figure", "analysis", "pictures")
    fonts = optional("matplotlib.font_manager", "analysis", "pictures")
    installed = {font.name for font in fonts.fontManager.ttflist}
    others = [name for name in FALLBACK if name in installed]
    settings = {
        "svg.fonttype": "none", "pdf.fonttype": 42, "font.size": 10,
        "font.family": [SANS, *others], "font.monospace": [MONOSPACE, *others],
    }  # fmt: skip
    with matplotlib.rc_context(settings), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure = figures.Figure(figsize=(width, height), **more)
        yield figure
        with replacing(output) as temporary:
            ending = Path(output).suffix.lower().removeprefix(".")
            figure.savefig(temporary, dpi=DPI, format=ending)
    missing = [str(found.message) for found in caught if "missing from" in str(found.message)]
    if missing:
        logging.warning(
            "%s: some characters are drawn as boxes, because no installed font contains them (%s); "
            "install the Noto fonts, or write .svg",
            output, missing[0].split(")")[0] + ")",
        )  # fmt: skip


def monospace() -> list[str]:
    """Return the names of the fonts for concordances; call it inside `drawing`."""
    return list(optional("matplotlib", "analysis", "pictures").rcParams["font.monospace"])
