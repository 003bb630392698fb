"""Few distinct tokens in many places: products from a table, with the same vectors as without."""

import keras
import numpy as np
import pytest
from conftest import golden_cases

from bilm.embedding import packed_runner
from bilm.embedding.embedder import ElmoEmbedder

FOLDER = golden_cases("inference")[0].values[0]
SEQUENCES = [list("ACDEFGHIKL" * n) for n in (9, 1, 5, 3)]


def embedder(**how):
    return ElmoEmbedder(FOLDER / "options.json", FOLDER / "weights.hdf5", **how)


@pytest.fixture
def ways(monkeypatch):
    """The way that each group of sentences ran: by rows of a table, or by vectors."""
    found, run = [], packed_runner.PackedRunner._steps

    def noted(*arguments, as_rows=False):
        found.append(as_rows)
        return run(*arguments, as_rows=as_rows)

    monkeypatch.setattr(packed_runner.PackedRunner, "_steps", noted)
    return found


@pytest.mark.parametrize("joint", [512, 0])
@pytest.mark.parametrize("precision, atol", [("float32", 1e-6), ("bfloat16", 0.02)])
def test_a_table_gives_the_vectors_of_its_places(monkeypatch, ways, joint, precision, atol):
    if keras.backend.backend() == "tensorflow":
        from bilm.layers.tensorflow import lstm_weights

        monkeypatch.setattr(lstm_weights, "MAX_JOINT", joint)
    monkeypatch.setattr(packed_runner, "REPEATS", np.inf)
    expected = embedder(precision=precision).embed_batch(SEQUENCES)
    assert True not in ways
    monkeypatch.setattr(packed_runner, "REPEATS", 8)
    found = embedder(precision=precision).embed_batch(SEQUENCES)
    assert ways[-1] is True
    for vectors, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(vectors, wanted, atol=atol * np.abs(wanted).max())


def test_words_that_seldom_repeat_need_no_table(ways):
    sequences = [[f"w{i}" for i in range(start, start + 60)] for start in (0, 30, 45)]
    embedder().embed_batch(sequences)
    embedder(batch_tokens=16).embed_batch(SEQUENCES)  # eight places each in all, two in a window
    assert ways and True not in ways
