"""Maps of the usages of a word: clusters, their names, and coordinates in the plane; and a
self-contained HTML page that draws them by plotly.js. Its template is `page.html`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bilm.errors import OptionsError
from bilm.studies.usages.usages import Usages, normalized, words_near
from bilm.support import Progress, optional, protect, replacing

if TYPE_CHECKING:
    import pandas

N_CLUSTERS = 5  # of k-means
N_STARTS = 5  # runs of k-means, of which the best is kept
N_TYPICAL = 3  # words in the name of a cluster
# Okabe and Ito's colours, which colour-blind readers can distinguish; yellow is left out.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
N_NEIGHBOURS = 10
FIELDS = ("grouping", "text", "line", "position", "sentence", "date")
DIGITS = 5  # of coordinates


def cluster(vectors: np.ndarray, n_clusters: int = N_CLUSTERS, seed: int = 0) -> np.ndarray:
    """Return the labels of vectors (N, D), int (N,), in at most `n_clusters` clusters by k-means,
    numbered by descending size from 0. The vectors are divided by their norms first."""
    points = normalized(vectors)
    n_distinct = len(np.unique(points, axis=0))
    k_means = optional("sklearn.cluster", "analysis", "clusters").KMeans
    model = k_means(min(n_clusters, n_distinct), n_init=N_STARTS, random_state=seed)
    labels = model.fit_predict(points)
    # The inverse of the order by size maps each label to its place in this order.
    by_size = np.argsort(-np.bincount(labels), kind="stable")
    return np.argsort(by_size)[labels]


def usage_map(
    usages: Usages, layer: int | None = None, n_clusters: int = N_CLUSTERS, seed: int = 0
) -> pandas.DataFrame:
    """Return the usages' data frame with the columns x, y and `cluster`. Their vectors in a layer,
    None for the highest, are divided by their norms, so that distances depend on cosines, and
    projected by the first two principal components. Raises: OptionsError for an unknown layer."""
    vectors = usages.vectors(layer)
    points = normalized(vectors)
    centred = points - points.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    components = (left * sizes)[:, :2]  # N, 2; fewer columns for one usage or one feature
    n_missing = 2 - components.shape[1]
    x, y = np.pad(components, ((0, 0), (0, n_missing))).T
    return usages.frame.assign(x=x, y=y, cluster=cluster(vectors, n_clusters, seed))


def cluster_names(frame: pandas.DataFrame) -> list[str]:
    """Return names of the clusters of a map: numbers from 1, and typical words, which occur n > 1
    times near the usages and have the largest sqrt(n) log(p(word | cluster) / p(word)), about the
    log-ratio divided by its standard error."""
    near = [Counter[str]() for _ in range(frame["cluster"].max() + 1)]  # words by cluster
    for usage in frame.itertuples():
        words = words_near(usage.sentence, usage.position)
        near[usage.cluster].update(word.casefold() for word in words if word.isalpha())
    near_all = sum(near, Counter[str]())
    names = []
    for number, counts in enumerate(near, 1):
        scores = {}
        for word, n in counts.items():
            if n > 1:
                log_share = np.log(counts.total() / near_all.total())
                log_ratio = np.log(n / near_all[word]) - log_share
                scores[word] = n**0.5 * log_ratio
        typical = sorted(scores, key=lambda word: (-scores[word], word))[:N_TYPICAL]
        name = f"cluster {number}"
        names.append(f"{name}: {', '.join(typical)}" if typical else name)
    return names


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
    maps = {}
    for layer in bar.over(usages.layers):
        frame = usage_map(usages, layer, n_clusters, seed)
        maps[layer] = {
            "points": frame[["x", "y"]].round(DIGITS).to_numpy().tolist(),
            "clusters": frame["cluster"].tolist(),
            "names": cluster_names(frame),
            "neighbours": _neighbours(usages.vectors(layer)),
        }
    records = json.loads(usages.frame[list(FIELDS)].to_json(orient="records"))
    return {"word": usages.words[0], "usages": records, "maps": maps}


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
