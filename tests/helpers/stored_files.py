"""A small stored model, and helpers for tests of its files."""

import zipfile

import numpy as np
from conftest import golden_cases

from bilm.storage.finding.cache import LOCK, RECORD
from bilm.storage.stored_model import open_model

CASE = golden_cases("inference")[0].values[0]
OPTIONS, WEIGHTS = FILES = CASE / "options.json", CASE / "weights.hdf5"


def resolve(*given):
    """The two paths that identify a model."""
    found = open_model(*given)
    return found.options_file, found.weight_file


def load_bilm(source, weights=None, **inputs):
    return open_model(source, weights).build(**inputs)


def stored_values(model):
    """Return the weights as they are stored: float32 by name, without a padding row."""
    values = {name: variable.numpy() for name, variable in model.stored_variables().items()}
    for name, spec in model.specs().items():
        if model.padding and spec.row.has_padding:
            values[name] = values[name][1:]
    return values


def check_vectors(found, expected, atol=1e-5):
    """Compare float32 vectors, an array per sentence."""
    assert [(a.shape, a.dtype) for a in found] == [(b.shape, np.float32) for b in expected]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=atol)


def same(found, expected):
    return [p.read_bytes() for p in found] == [p.read_bytes() for p in expected]


def make_zip(path, names, weights=WEIGHTS):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            kind = OPTIONS if name.endswith(".json") else weights
            file.write(kind, name)
    return path


def files_in(folder):
    """Return the files in a folder or cache, except the cache's records and locks."""
    return [p for p in folder.rglob("*") if p.is_file() and p.name not in (RECORD, LOCK)]
