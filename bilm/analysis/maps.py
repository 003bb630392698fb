"""Maps of usages: coordinates in the plane, and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bilm.analysis.clusters import N_CLUSTERS, cluster
from bilm.analysis.pictures import CHARACTER, MARKS, PALETTE, drawing, monospace, plain
from bilm.analysis.usages import Usages, normalized
from bilm.errors import OptionsError
from bilm.support.imports import optional

if TYPE_CHECKING:
    import pandas

PROJECTIONS = ("pca", "umap")
COLORS = ("grouping", "cluster")
MANY = 1_000  # usages, which overlap in a picture
MAX_LISTED = 25  # usages whose sentences a picture lists
CONTEXT = 46  # characters of a sentence to each side of the word
WIDTH, MAP, LINE, MIDDLE = 7.4, 4.8, 0.17, 3.5  # inches of a picture, and of its list
FONT = 6.6  # points, of the list


def usage_map(
    usages: Usages,
    layer: int | None = None,
    projection: str = "pca",
    n_clusters: int = N_CLUSTERS,
    seed: int = 0,
) -> pandas.DataFrame:
    """Project the usages of a word to the plane.

    Vectors are divided by their norms first, so that distances depend on cosines.

    Args:
        usages: the usages.
        layer: number of the layer; None for the highest.
        projection: "pca" for the first two principal components, which does not depend on a seed,
            or "umap" (McInnes et al. 2018, arXiv:1802.03426), which requires umap-learn.
        n_clusters: number of clusters of k-means.
        seed: seed of the clusters and of UMAP.
    Returns: the usages' data frame with the columns x, y and cluster.
    Raises: OptionsError for an unknown projection or layer; MissingExtraError.
    """
    number = usages.layers[-1] if layer is None and usages.layers else layer
    if number is None:
        raise OptionsError("the table of usages contains no vectors")
    points = _projected(normalized(usages.vectors(number)), projection, seed)
    labels = cluster(usages.vectors(number), n_clusters, seed)
    return usages.frame.assign(x=points[:, 0], y=points[:, 1], cluster=labels)


def _projected(vectors: np.ndarray, projection: str, seed: int) -> np.ndarray:
    """Return coordinates, float (N, 2)."""
    if projection not in PROJECTIONS:
        raise OptionsError(f"the projection is {projection!r}, expected {' or '.join(PROJECTIONS)}")
    if len(vectors) < 3:  # too few for either: on a line
        return np.stack([np.arange(len(vectors)), np.zeros(len(vectors))], axis=1).astype(float)
    if (vectors == vectors[0]).all():  # layer 0 of one form
        return np.zeros((len(vectors), 2))
    if projection == "umap":
        umap = optional("umap", "umap", "the projection umap")
        model = umap.UMAP(
            n_neighbors=min(15, len(vectors) - 1), metric="cosine", random_state=seed, n_jobs=1,
            init="random" if len(vectors) < 5 else "spectral",
        )  # fmt: skip
        return np.asarray(model.fit_transform(vectors), float)
    pca = optional("sklearn.decomposition", "analysis", "maps of usages").PCA
    points = pca(2, svd_solver="full", random_state=0).fit_transform(vectors)
    # The sign of a component is arbitrary: the largest coordinate is positive.
    largest = points[np.abs(points).argmax(axis=0), [0, 1]]
    return points * np.where(largest < 0, -1, 1)


def colored(frame: pandas.DataFrame, color: str) -> dict[str, np.ndarray]:
    """Return the rows of each colour of a map, by name.

    Args:
        frame: result of `usage_map`.
        color: "grouping" or "cluster".
    Raises: OptionsError for another colour.
    """
    if color not in COLORS:
        raise OptionsError(f"the colour is {color!r}, expected one of {', '.join(COLORS)}")
    if color == "cluster":
        names = {label: f"cluster {label + 1}" for label in sorted(set(frame[color]))}
    else:
        names = {name: name for name in dict.fromkeys(frame[color])}
    return {name: np.flatnonzero(frame[color] == value) for value, name in names.items()}


def context_of(row: Any, width: int = CONTEXT) -> tuple[str, str, str]:
    """Return the text before the word, the word, and the text after it, cut at `width` characters.

    Args:
        row: a row of a usages' data frame.
        width: maximum number of characters on each side.
    """
    words = row["sentence"].split(" ")
    before = " ".join(words[: row["position"]])
    after = " ".join(words[row["position"] + 1 :])
    if len(before) > width:
        before = "…" + before[len(before) - width + 1 :].lstrip()
    if len(after) > width:
        after = after[: width - 1].rstrip() + "…"
    return before, words[row["position"]], after


def draw_map(
    usages: Usages,
    output: str | Path,
    layer: int | None = None,
    color: str = "grouping",
    projection: str = "pca",
    n_clusters: int = N_CLUSTERS,
    seed: int = 0,
) -> None:
    """Draw a map of the usages of a word. Few usages are numbered, and their sentences listed.

    Args:
        usages: the usages.
        output: picture; the ending .png, .svg or .pdf selects its form.
        color: "grouping" or "cluster".
        layer, projection, n_clusters, seed: see `usage_map`.
    Raises: OptionsError for another ending, as `usage_map` and `colored` do, or without usages.
    """
    if not len(usages):
        raise OptionsError("there are no usages to draw")
    frame = usage_map(usages, layer, projection, n_clusters, seed)
    number = usages.layers[-1] if layer is None else layer
    listed = len(frame) <= MAX_LISTED
    list_height = LINE * len(frame) + 0.2 if listed else 0.0
    height = MAP + 0.65 + list_height
    with drawing(output, WIDTH, height) as figure:
        corner = 0.3 / WIDTH, (list_height + 0.2) / height
        axes = figure.add_axes((*corner, MAP / WIDTH, MAP / height))
        size = float(np.clip(9000 / len(frame), 6, 60))
        alpha = 0.75 if len(frame) < MANY else 0.4
        for k, (name, rows) in enumerate(colored(frame, color).items()):
            own = frame.iloc[rows]
            axes.scatter(
                own["x"], own["y"], s=size, c=PALETTE[k % len(PALETTE)],
                marker=MARKS[k % len(MARKS)], label=f"{plain(name)} ({len(own):,})", alpha=alpha,
                linewidths=0.3, edgecolors="white",
            )  # fmt: skip
        axes.set_xticks([])
        axes.set_yticks([])
        axes.margins(0.08)
        words = ", ".join(dict.fromkeys(frame["word"]))
        axes.set_title(plain(f"{words}, layer {number}, {projection.upper()}"), loc="left")
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0)
        if listed:
            _number(axes, frame)
            _list(figure, frame)


def _number(axes: Any, frame: pandas.DataFrame) -> None:
    """Write the number of each usage beside its point."""
    for k, (x, y) in enumerate(zip(frame["x"], frame["y"], strict=True), 1):
        axes.annotate(str(k), (x, y), (4, 4), textcoords="offset points", fontsize=8)


def _list(figure: Any, frame: pandas.DataFrame) -> None:
    """Write the numbered sentences at the bottom, with the word in the middle."""
    _, height = figure.get_size_inches()
    font: dict[str, Any] = {"family": monospace(), "fontsize": FONT, "va": "center"}
    for k, row in enumerate(reversed(frame.to_dict("records"))):
        before, word, after = map(plain, context_of(row))
        y = (LINE * (k + 0.5) + 0.1) / height
        end = MIDDLE + (len(word) + 1) * FONT * CHARACTER / 72
        figure.text(0.3 / WIDTH, y, f"{len(frame) - k}", ha="right", **font)
        figure.text((MIDDLE - 0.07) / WIDTH, y, before, ha="right", **font)
        figure.text(MIDDLE / WIDTH, y, word, ha="left", color=PALETTE[1], fontweight="bold", **font)
        figure.text(end / WIDTH, y, after, ha="left", **font)
