"""The id that weights, options and softmax of one export share.

The three files are renamed into place one after the other. A kill in between leaves files of two
exports side by side. Their shapes may be equal, but their ids differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bilm.errors import WeightsError
from bilm.options import EXPORT_ID, ModelOptions
from bilm.storage.hdf5 import attribute, open_hdf5


def export_id(options: Mapping[str, Any], values: Mapping[str, np.ndarray]) -> str:
    """Return the id of an export: a digest of its options and values, 16 hexadecimal digits."""
    digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode())
    for name in sorted(values):
        digest.update(name.encode() + b"\0")
        digest.update(np.ascontiguousarray(values[name]).data)
    return digest.hexdigest()[:16]


def read_export_id(path: str | Path) -> str | None:
    """Return the id of an HDF5 file; None if another program or an older bilm wrote it."""
    with open_hdf5(path) as file:
        return attribute(file, EXPORT_ID)


def check_same_export(
    options: ModelOptions,
    options_file: str | Path,
    weight_file: str | Path,
    softmax_file: str | Path | None = None,
) -> None:
    """Check that files are of one export. Options without an id, as in a run, match any weights.

    Raises: WeightsError if they are of different exports.
    """
    expected = read_export_id(weight_file)
    found = {options_file: options.other.get(EXPORT_ID, expected)}
    if softmax_file is not None:
        found[softmax_file] = read_export_id(softmax_file)
    for path, id_of_file in found.items():
        if id_of_file != expected:
            raise WeightsError(
                f"{path}: of another export ({id_of_file or 'unnamed'}) than {weight_file} "
                f"({expected or 'unnamed'}); export the model again with dump_weights"
            )
