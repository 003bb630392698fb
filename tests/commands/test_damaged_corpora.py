"""Damaged tables, CoNLL-U and FASTA through `bilm embed`: see docs/reliability.md."""

import keras
import pytest
from fuzz_corpora import KINDS
from fuzz_runs import assert_survives


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the commands are TensorFlow's")
def test_damaged_corpora():
    """Each ends in a file of vectors or in one line that names the corpus, and leaves no part."""
    assert_survives("fuzz_corpora.py", 40, list(KINDS))
