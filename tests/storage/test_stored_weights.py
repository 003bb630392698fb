"""Stored weights while files change, and those that a process remembers by a key."""

import os
import shutil

import pytest

from bilm.errors import WeightsError
from bilm.storage.stored_model import open_model
from bilm.storage.stored_weights import known_weights


def test_known_weights_are_those_of_unchanged_files(stored_model, tmp_path):
    first = open_model(stored_model).weights()
    key = first.remember()
    other = shutil.copytree(stored_model, tmp_path / "other")
    newer = open_model(other).weights()
    newer_key = newer.remember()
    assert known_weights(key) is first and known_weights(newer_key) is newer
    os.utime(other / "weights.hdf5", (1, 1))
    assert known_weights(newer_key) is None and known_weights(key) is first


def test_file_that_is_replaced_while_it_is_read_is_an_error(stored_model, tmp_path):
    weights = stored_model / "weights.hdf5"
    values = open_model(stored_model).weights().values()
    next(values)
    os.replace(shutil.copy(weights, tmp_path), weights)
    with pytest.raises(WeightsError, match="has changed since the model was opened"):
        next(values)
