"""Maps of usages: clusters, coordinates in the plane, pictures, and a self-contained HTML page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bilm.analysis.pictures import MARKS, PALETTE, drawing, plain
from bilm.analysis.usages import Usages, normalized, words_near
from bilm.errors import OptionsError
from bilm.support.files import protect, replacing
from bilm.support.imports import optional
from bilm.support.progress import progress

if TYPE_CHECKING:
    import pandas

COLORS = ("grouping", "cluster")
N_CLUSTERS = 5  # of k-means
N_TYPICAL = 3  # words in the name of a cluster
WIDTH, HEIGHT = 7.4, 5.4  # inches of a picture
# Of the page:
TEMPLATE = "page.html"
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
N_NEIGHBOURS = 10
FIELDS = ("grouping", "text", "line", "position", "sentence", "date")
DIGITS = 5  # of coordinates


def cluster(vectors: np.ndarray, n_clusters: int = N_CLUSTERS, seed: int = 0) -> np.ndarray:
    """Cluster vectors by direction with k-means: they are divided by their norms first.

    Args:
        vectors: float (N, D).
        n_clusters: number of clusters, at most N.
        seed: seed of the initial centres.
    Returns: labels, int (N,), numbered by descending size from 0.
    Raises: MissingExtraError without scikit-learn.
    """
    points = normalized(vectors)
    n_distinct = len(np.unique(points, axis=0))
    k_means = optional("sklearn.cluster", "analysis", "clusters").KMeans
    model = k_means(min(n_clusters, n_distinct), n_init=5, random_state=seed)
    labels = model.fit_predict(points)
    order = np.argsort(-np.bincount(labels), kind="stable")
    return np.argsort(order)[labels]


def usage_map(
    usages: Usages, layer: int | None = None, n_clusters: int = N_CLUSTERS, seed: int = 0
) -> pandas.DataFrame:
    """Project the usages of a word to the plane by their first two principal components.

    Vectors are divided by their norms first, so that distances depend on cosines.

    Args:
        usages: the usages.
        layer: number of the layer; None for the highest.
        n_clusters: number of clusters of k-means.
        seed: seed of the clusters.
    Returns: the usages' data frame with the columns x, y and cluster.
    Raises: OptionsError for an unknown layer; MissingExtraError.
    """
    vectors = usages.vectors(layer)
    centred = normalized(vectors) - normalized(vectors).mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    missing = max(0, 2 - len(sizes))  # components, which are zero
    x, y = np.pad((left * sizes)[:, :2], ((0, 0), (0, missing))).T
    return usages.frame.assign(x=x, y=y, cluster=cluster(vectors, n_clusters, seed))


def cluster_names(frame: pandas.DataFrame) -> list[str]:
    """Return names of the clusters of a map: numbers from 1, and typical words.

    Typical words occur n > 1 times near the usages and have the largest
    sqrt(n) log(p(word | cluster) / p(word)), about the log-ratio divided by its standard error.

    Args:
        frame: result of `usage_map`.
    """
    near = [Counter[str]() for _ in range(frame["cluster"].max() + 1)]
    for k, *place in zip(frame["cluster"], frame["sentence"], frame["position"], strict=True):
        near[k].update(word.casefold() for word in words_near(*place) if word.isalpha())
    every = sum(near, Counter[str]())
    names = []
    for k, counts in enumerate(near, 1):
        log = np.log(counts.total() / every.total() or 1)
        score = {w: n**0.5 * (np.log(n / every[w]) - log) for w, n in counts.items() if n > 1}
        typical = sorted(score, key=lambda w: (-score[w], w))[:N_TYPICAL]
        names.append(f"cluster {k}" + ": " * bool(typical) + ", ".join(typical))
    return names


def colored(frame: pandas.DataFrame, color: str) -> dict[str, pandas.DataFrame]:
    """Return the rows of each colour of a map, by name.

    Args:
        frame: result of `usage_map`.
        color: "grouping" or "cluster".
    """
    groups = frame.groupby(color, sort=color == "cluster")
    names = cluster_names(frame) if color == "cluster" else []
    return {names[k] if names else str(k): rows for k, rows in groups}


def draw_map(
    usages: Usages,
    output: str | Path,
    layer: int | None = None,
    color: str = "grouping",
    n_clusters: int = N_CLUSTERS,
    seed: int = 0,
) -> None:
    """Draw a map of the usages of a word.

    Args:
        usages: the usages.
        output: picture; the ending .png, .svg or .pdf selects its form.
        color: "grouping" or "cluster".
        layer, n_clusters, seed: see `usage_map`.
    Raises: OptionsError for another ending, and as `usage_map` and `colored` do.
    """
    frame = usage_map(usages, layer, n_clusters, seed)
    number = max(usages.layers) if layer is None else layer
    with drawing(output, WIDTH, HEIGHT) as figure:
        axes = figure.subplots()
        size = float(np.clip(9000 / len(frame), 6, 60))
        for k, (name, own) in enumerate(colored(frame, color).items()):
            axes.scatter(
                own["x"], own["y"], s=size, c=PALETTE[k % len(PALETTE)],
                marker=MARKS[k % len(MARKS)], label=f"{plain(name)} ({len(own):,})",
                alpha=0.6, linewidths=0.3, edgecolors="white",
            )  # fmt: skip
        axes.set(xticks=[], yticks=[])
        axes.margins(0.08)
        words = ", ".join(dict.fromkeys(frame["word"]))
        axes.set_title(plain(f"{words}, layer {number}"), loc="left")
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0)


# --- the page ---


def write_page(
    usages: Sequence[Usages],
    output: str | Path,
    layer: int | None = None,
    n_clusters: int = N_CLUSTERS,
    seed: int = 0,
) -> None:
    """Write a page with a map for each word and layer.

    The page shows a sentence when the pointer is on its point. The legend hides groupings or
    clusters; menus choose word, layer and colour; a table lists the usages that are shown or
    selected, and the usages most similar to a chosen one. It contains plotly.js (5 MB).

    Args:
        usages: the usages of each word.
        output: the page, whose name ends with .html.
        layer: number of the layer that is shown first; None for the highest.
        n_clusters, seed: see `usage_map`.
    Raises: OptionsError for another ending, without usages, or if the layer is not stored.
    """
    path = Path(output)
    if path.suffix.lower() != ".html":
        raise OptionsError(f"{output}: unknown ending; expected .html")
    if not usages or not all(map(len, usages)):
        raise OptionsError("there are no usages to show")
    layers = usages[0].layers
    usages[0].vectors(layer)  # an error before anything is computed
    protect(path)
    plotly = optional("plotly.offline", "analysis", "pages of usages").get_plotlyjs()
    with progress("projecting", "maps", len(usages) * len(layers)) as shown:
        words = [_content(own, n_clusters, seed, shown.add) for own in usages]
    data = {
        "words": words, "layers": layers, "layer": max(layers) if layer is None else layer,
        "colors": COLORS, "palette": PALETTE, "symbols": SYMBOLS,
    }  # fmt: skip
    template = (files("bilm.analysis") / TEMPLATE).read_text("utf-8")
    before, _, rest = template.partition("/*PLOTLY*/")
    middle, _, after = rest.partition("/*DATA*/")
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.writelines((before, plotly, middle, _embedded(data), after))


def _embedded(data: Any) -> str:
    """Return JSON that can stand inside a script element: it must not contain `</script`."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _content(usages: Usages, n_clusters: int, seed: int, count: Any) -> dict[str, Any]:
    """Return what the page shows of a word."""
    frame = usages.frame
    rows = frame[list(FIELDS)].astype(object).where(frame[list(FIELDS)].notna(), None)
    found: dict[str, Any] = {
        "word": str(frame["word"].iloc[0]),
        "usages": rows.to_dict("records"),
        "points": {},
        "clusters": {},
        "names": {},
        "neighbours": {},
    }
    for layer in usages.layers:
        drawn = usage_map(usages, layer, n_clusters, seed)
        found["points"][layer] = drawn[["x", "y"]].round(DIGITS).to_numpy().tolist()
        found["clusters"][layer] = drawn["cluster"].tolist()
        found["names"][layer] = cluster_names(drawn)
        found["neighbours"][layer] = _neighbours(usages.vectors(layer))
        count(1)
    return found


def _neighbours(vectors: np.ndarray) -> list[list[tuple[int, float]]]:
    """Return, for each usage, the numbers and cosines of the most similar others."""
    n = min(N_NEIGHBOURS, len(vectors) - 1)
    if n == 0:
        return [[]]
    search = optional("sklearn.neighbors", "analysis", "similar usages").NearestNeighbors
    distances, rows = search(n_neighbors=n, metric="cosine").fit(vectors).kneighbors()
    cosines = (1 - distances).round(3).tolist()
    return [list(zip(*pair, strict=True)) for pair in zip(rows.tolist(), cosines, strict=True)]
