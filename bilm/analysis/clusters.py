"""Clusters of usages, by scikit-learn."""

from __future__ import annotations

import numpy as np

from bilm.analysis.usages import normalized
from bilm.support.imports import optional

N_CLUSTERS = 5  # of k-means


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
    if len(points) < 2:
        return np.zeros(len(points), np.int64)
    k_means = optional("sklearn.cluster", "analysis", "clusters").KMeans
    n_distinct = len(np.unique(points, axis=0))
    model = k_means(min(n_clusters, n_distinct), n_init=5, random_state=seed)
    return _by_size(model.fit_predict(points))


def _by_size(labels: np.ndarray) -> np.ndarray:
    """Number clusters by descending size; of equal ones, the one that occurs first is first."""
    names, first, places, sizes = np.unique(
        labels, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.lexsort((first, -sizes))
    numbers: np.ndarray = np.empty(len(names), np.int64)
    numbers[order] = np.arange(len(names))
    return numbers[places]
