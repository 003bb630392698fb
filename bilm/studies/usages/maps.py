"""Maps of the usages of a word: clusters, their names, and coordinates in the plane."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from bilm.studies.usages.usages import Usages, normalized, words_near
from bilm.support import optional

if TYPE_CHECKING:
    import pandas

N_CLUSTERS = 5  # of k-means
N_STARTS = 5  # runs of k-means, of which the best is kept
N_TYPICAL = 3  # words in the name of a cluster


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
