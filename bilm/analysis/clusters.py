"""Clusters of usages, by scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from absl import logging

from bilm.analysis.usages import normalized
from bilm.errors import OptionsError
from bilm.support.imports import optional

METHODS = ("kmeans", "affinity")
N_CLUSTERS = 5  # of k-means
MAX_AFFINITY = 1_500  # usages; affinity propagation needs memory and time for all pairs


def cluster(
    vectors: np.ndarray, method: str = "kmeans", n_clusters: int = N_CLUSTERS, seed: int = 0
) -> np.ndarray:
    """Cluster vectors by direction: they are divided by their norms first.

    Args:
        vectors: float (N, D).
        method: "kmeans", or "affinity" for affinity propagation (Frey and Dueck 2007, Clustering by
            passing messages between data points), which chooses the number of clusters itself. Of
            more than `MAX_AFFINITY` vectors, a sample is clustered, and the others join the nearest
            exemplar.
        n_clusters: number of clusters of k-means, at most N.
        seed: seed of the initial centres and of the sample.
    Returns: labels, int (N,), numbered by descending size from 0.
    Raises: OptionsError for an unknown method; MissingExtraError without scikit-learn.
    """
    if method not in METHODS:
        raise OptionsError(f"the clusters are {method!r}, expected one of {', '.join(METHODS)}")
    sklearn = optional("sklearn.cluster", "analysis", "clusters")
    points = normalized(vectors)
    n = len(points)
    if n < 2:
        return np.zeros(n, np.int64)
    if method == "kmeans":
        n_distinct = len(np.unique(points, axis=0))
        model = sklearn.KMeans(min(n_clusters, n_distinct), n_init=5, random_state=seed)
        return _by_size(model.fit_predict(points))
    chosen = np.arange(n)
    if n > MAX_AFFINITY:
        chosen = np.sort(np.random.default_rng(seed).choice(n, MAX_AFFINITY, replace=False))
    sample = points[chosen]
    similarity = sample @ sample.T
    model = sklearn.AffinityPropagation(
        affinity="precomputed", random_state=seed, damping=0.9, max_iter=1000
    )
    labels = _fit(model, similarity)
    if labels is None:
        logging.warning(
            "affinity propagation of %d usages has not converged: they form one cluster, and their "
            "divergence is 0; k-means always finds clusters", n,
        )  # fmt: skip
        return np.zeros(n, np.int64)
    exemplars = sample[model.cluster_centers_indices_]
    found = np.argmax(points @ exemplars.T, axis=1)
    found[chosen] = labels
    return _by_size(found)


def _fit(model: Any, similarity: np.ndarray) -> np.ndarray | None:
    """Return the labels of affinity propagation; None if it does not converge."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged, or all points are equal
        model.fit(similarity)
    return None if (model.labels_ < 0).any() else model.labels_


def _by_size(labels: np.ndarray) -> np.ndarray:
    """Number clusters by descending size; of equal ones, the one that occurs first is first."""
    names, first, places, sizes = np.unique(
        labels, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.lexsort((first, -sizes))
    numbers: np.ndarray = np.empty(len(names), np.int64)
    numbers[order] = np.arange(len(names))
    return numbers[places]
