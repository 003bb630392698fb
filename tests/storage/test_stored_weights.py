"""The weights that a process remembers, which copies of its layers find by a key."""

import os
import shutil

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
