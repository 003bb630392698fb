"""A self-contained HTML page with maps of the usages of words, drawn by plotly.js. Its template,
`page.html`, shows the data that `write_page` embeds as JSON."""

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from bilm.errors import OptionsError
from bilm.studies.usages.maps import N_CLUSTERS, cluster_names, usage_map
from bilm.studies.usages.pictures import PALETTE
from bilm.studies.usages.usages import Usages
from bilm.support import Progress, optional, protect, replacing

SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
N_NEIGHBOURS = 10
FIELDS = ("grouping", "text", "line", "position", "sentence", "date")
DIGITS = 5  # of coordinates


def write_page(
    usages: Sequence[Usages],
    output: str | Path,
    layer: int | None = None,
    n_clusters: int = N_CLUSTERS,
    seed: int = 0,
) -> None:
    """Write a page (.html) with a map for each word, whose usages are given, and layer, and a table
    of the usages that are selected or most similar to a chosen one. It contains plotly.js (5 MB).
    `layer` is shown first; None for the highest. Raises: OptionsError without usages, or if the
    layer is not stored."""
    if not usages or not all(map(len, usages)):
        raise OptionsError("there are no usages to show")
    layers = usages[0].layers
    usages[0].vectors(layer)  # an error before anything is computed
    protect(output)
    plotly = optional("plotly.offline", "analysis", "pages of usages").get_plotlyjs()
    bar = Progress("projecting", "maps", len(usages) * len(layers))
    words = [_content(of_word, n_clusters, seed, bar) for of_word in usages]
    data = {
        "words": words,
        "layers": layers,
        "layer": max(layers) if layer is None else layer,
        "palette": PALETTE,
        "symbols": SYMBOLS,
    }

    # The script element of the data must not contain `</script`.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    template = (files("bilm.studies.usages") / "page.html").read_text("utf-8")
    page = template.replace("/*PLOTLY*/", plotly).replace("/*DATA*/", text)
    with replacing(output) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _content(usages: Usages, n_clusters: int, seed: int, bar: Progress) -> dict[str, object]:
    columns = usages.frame[list(FIELDS)]
    without_nan = columns.astype(object).where(columns.notna(), None)
    by_layer: dict[str, dict] = {"points": {}, "clusters": {}, "names": {}, "neighbours": {}}
    for layer in bar.over(usages.layers):
        frame = usage_map(usages, layer, n_clusters, seed)
        by_layer["points"][layer] = frame[["x", "y"]].round(DIGITS).to_numpy().tolist()
        by_layer["clusters"][layer] = frame["cluster"].tolist()
        by_layer["names"][layer] = cluster_names(frame)
        by_layer["neighbours"][layer] = _neighbours(usages.vectors(layer))
    records = without_nan.to_dict("records")
    return {"word": usages.words[0], "usages": records, **by_layer}


def _neighbours(vectors: np.ndarray) -> list[list[tuple[int, float]]]:
    """Return, for each usage, the numbers and cosines of the most similar others."""
    n = min(N_NEIGHBOURS, len(vectors) - 1)
    if n == 0:
        return [[]]
    search = optional("sklearn.neighbors", "analysis", "similar usages").NearestNeighbors
    distances, numbers = search(n_neighbors=n, metric="cosine").fit(vectors).kneighbors()  # N, n
    cosines = (1 - distances).round(3)
    rows = zip(numbers.tolist(), cosines.tolist(), strict=True)
    return [list(zip(*row, strict=True)) for row in rows]
