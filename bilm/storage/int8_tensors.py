"""Weights of a biLM that are stored in eight bits, in HDF5, as bilm 0.1.0 exported them.

In place of a matrix `X`, float32 (K, N), the file contains `X_int8`, int8 (K, N), and
`X_int8_scales`, float32 (N,), one per column: X = X_int8 * X_int8_scales. Programs that require
float32 find no dataset `X`. The matrices are those of LSTMs, highway layers and projections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bilm.errors import WeightsError
from bilm.storage.formats.base import LazyTensor
from bilm.storage.hdf5 import HDF5Tensors, numbers, open_hdf5

VALUES, SCALES = "_int8", "_int8_scales"  # ends of the names of datasets


class Int8Tensors(HDF5Tensors):
    """The weights in an HDF5 file, those in eight bits under the names of the float32 matrices.

    Args:
        path: the file.
    Attributes: `rounded`, the names of the matrices in eight bits.
    Raises: WeightsError.
    """

    def __init__(self, path: str | Path):
        super().__init__(path)
        pairs = (name.removesuffix(VALUES) for name in self.names if name.endswith(VALUES))
        self.rounded = {name for name in pairs if name + SCALES in self.names}
        parts = {name + end for name in self.rounded for end in (VALUES, SCALES)}
        self.names = (self.names - parts) | self.rounded

    @contextmanager
    def opened(self) -> Iterator[Callable[[str], Any]]:
        """Open the file."""
        with open_hdf5(self.source) as file:
            yield lambda name: _matrix(file, name) if name in self.rounded else numbers(file, name)


def _matrix(file: h5py.File, name: str) -> LazyTensor:
    """Return a matrix in eight bits. Raises: WeightsError."""
    values, scales = numbers(file, name + VALUES), numbers(file, name + SCALES)
    if values.dtype != np.int8 or values.ndim != 2 or scales.shape != values.shape[1:]:
        raise WeightsError(
            f"{file.filename}: {name}{VALUES} is {values.dtype} {values.shape} and {name}{SCALES} "
            f"has shape {scales.shape}; expected int8 (K, N) and (N,)"
        )

    def product() -> np.ndarray:
        # Scales that float32 cannot hold are refused later, with all values that are not finite.
        with np.errstate(over="ignore", invalid="ignore"):
            return values[...] * scales[...].astype(np.float32)

    return LazyTensor(values.shape, values.dtype, product)
