"""Weights of layers in eight bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from keras import ops

LARGEST = 127  # largest absolute value of a quantized weight


class Int8Matrix(NamedTuple):
    """A matrix, `values * scales`: `values` int8 (K, N), `scales` float32 (N,), one per column."""

    values: np.ndarray
    scales: np.ndarray


class Int8Cell(NamedTuple):
    """The weights of an `LSTMCell`: `kernel`, `bias` float32 (4 D,), `projection` or None."""

    kernel: Int8Matrix
    bias: np.ndarray
    projection: Int8Matrix | None


def quantized(weight: Any) -> Int8Matrix:
    """Round a matrix, float32 (K, N), to multiples of 1/127 of each column's largest value."""
    weight = ops.convert_to_numpy(weight)
    scales = np.abs(weight).max(axis=0) / LARGEST
    scales[scales < np.finfo(np.float32).tiny] = 1  # columns of zeros
    return Int8Matrix(np.rint(weight / scales).astype(np.int8), scales)
