"""Few distinct tokens in many places: products from a table, with the same vectors as without."""

import keras
import numpy as np
import pytest
from conftest import golden_cases

from bilm.embedding import packed_runner
from bilm.embedding.embedder import ElmoEmbedder

FOLDER = golden_cases("inference")[0].values[0]
SEQUENCES = [list("ACDEFGHIKL" * n) for n in (9, 1, 5, 3)]


def load(**how):
    return ElmoEmbedder(FOLDER / "options.json", FOLDER / "weights.hdf5", **how)


@pytest.fixture
def ways(monkeypatch):
    """How each window ran: by rows of a table, or by vectors."""
    found, windows = [], packed_runner.PackedRunner._windows

    def noted(self, *arguments):
        runs = self._run_rows, self._run_steps

        def by(run, is_table):
            return lambda *given: found.append(is_table) or run(*given)

        self._run_rows, self._run_steps = by(runs[0], True), by(runs[1], False)
        yield from windows(self, *arguments)
        self._run_rows, self._run_steps = runs

    monkeypatch.setattr(packed_runner.PackedRunner, "_windows", noted)
    return found


@pytest.mark.parametrize(
    "precision, max_joint, atol", [("float32", 512, 0), ("float32", 0, 1e-6), ("bfloat16", 0, 0.02)]
)
def test_a_table_gives_the_vectors_of_its_places(monkeypatch, ways, precision, max_joint, atol):
    if keras.backend.backend() == "tensorflow":
        from bilm.layers.tensorflow import lstm_weights

        monkeypatch.setattr(lstm_weights, "MAX_JOINT", max_joint)
    embedder = load(precision=precision)
    monkeypatch.setattr(packed_runner, "REPEATS", np.inf)
    expected = embedder.embed_batch(SEQUENCES, "all")
    monkeypatch.setattr(packed_runner, "REPEATS", 8)
    found = embedder.embed_batch(SEQUENCES, "all")
    assert ways == [False, True]
    for vectors, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(vectors, wanted, atol=max(atol, 1e-7) * np.abs(wanted).max())


def test_words_that_seldom_repeat_need_no_table(ways):
    load().embed_batch([[f"w{i}" for i in range(start, start + 60)] for start in (0, 30, 45)])
    load(batch_tokens=16).embed_batch(SEQUENCES)  # two places each in a window
    assert ways and True not in ways
