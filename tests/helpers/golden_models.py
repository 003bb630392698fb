"""Golden cases of models of other programs: what is stored with them, and comparisons with it."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from bilm.storage.hdf5 import datasets_of

LIMIT = 1e-5


def model_in(case: Path) -> Path:
    """The archive or, without one, the folder of the model."""
    return max(case.glob("mod*"))


def sentences_of(case: Path) -> list[list[str]]:
    return json.loads((case / "sentences.json").read_text(encoding="utf-8"))


def expected_of(case: Path) -> list[np.ndarray]:
    """The layers (layers, T, 2 P) of each sentence."""
    with h5py.File(case / "expected.hdf5") as file:
        return [file[f"sentence_{k}"][...] for k in range(len(sentences_of(case)))]


def check_layers(found, case: Path) -> None:
    """Compare arrays (layers, T, 2 P), one per sentence."""
    for ours, theirs in zip(found, expected_of(case), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=LIMIT, rtol=0)
        assert ours.shape == theirs.shape


def check_conversion(model, case: Path, limit: float = 0.0) -> None:
    """Compare the tensors of a model with a conversion to bilm-tf's layout."""
    if not (case / "converted.hdf5").exists():
        pytest.skip("the conversion is not part of this folder of golden files")
    with h5py.File(case / "converted.hdf5") as file:
        assert datasets_of(file).keys() == set(model.tensors)
        for name, value in model.tensors.items():
            np.testing.assert_allclose(value, file[name], atol=limit, rtol=0)
