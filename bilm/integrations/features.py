"""Vectors of words as one row of features per word, the form that other libraries store."""

from __future__ import annotations

import numpy as np


def side_by_side(vectors: np.ndarray) -> np.ndarray:
    """Concatenate layers: (layers, T, D) -> (T, layers * D); (T, D) is returned unchanged."""
    if vectors.ndim == 2:
        return vectors
    n_layers, n_tokens, dim = vectors.shape
    by_token = vectors.swapaxes(0, 1)  # T, layers, D
    return by_token.reshape(n_tokens, n_layers * dim)
