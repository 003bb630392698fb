"""Packing of sentences into rows, windows computed ahead, and products from a table of tokens."""

import threading

import keras
import numpy as np
import pytest
from conftest import golden_cases
from hypothesis import given
from hypothesis import strategies as st

from bilm.embedding import embedder as embedder_module
from bilm.embedding.embedder import MAX_ROWS, ElmoEmbedder, PackedRunner, ahead, pack

FOLDER = golden_cases("inference")[0].values[0]
SEQUENCES = [list("ACDEFGHIKL" * n) for n in (9, 1, 5, 3)]


def load(**how):
    return ElmoEmbedder(FOLDER / "options.json", FOLDER / "weights.hdf5", **how)


@pytest.fixture
def ways(monkeypatch):
    """How each window ran: by rows of a table, or by vectors."""
    found, windows = [], PackedRunner._windows

    def noted(self, *arguments):
        runs = self._run_rows, self._run_steps

        def by(run, is_table):
            return lambda *given: found.append(is_table) or run(*given)

        self._run_rows, self._run_steps = by(runs[0], True), by(runs[1], False)
        yield from windows(self, *arguments)
        self._run_rows, self._run_steps = runs

    monkeypatch.setattr(PackedRunner, "_windows", noted)
    return found


@pytest.mark.parametrize(
    "precision, max_joint, atol", [("float32", 512, 0), ("float32", 0, 1e-6), ("bfloat16", 0, 0.02)]
)
def test_packed_runner_with_a_word_table_gives_the_same_vectors(
    monkeypatch, ways, precision, max_joint, atol
):
    if keras.backend.backend() == "tensorflow":
        from bilm.layers.tensorflow import lstm_weights

        monkeypatch.setattr(lstm_weights, "MAX_JOINT", max_joint)
    embedder = load(precision=precision)
    monkeypatch.setattr(embedder_module, "REPEATS", np.inf)
    expected = embedder.embed_batch(SEQUENCES, "all")
    monkeypatch.setattr(embedder_module, "REPEATS", 8)
    found = embedder.embed_batch(SEQUENCES, "all")
    assert ways == [False, True]
    for vectors, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(vectors, wanted, atol=max(atol, 1e-7) * np.abs(wanted).max())


@pytest.mark.parametrize("precision, atol", [("float32", 1e-6), ("bfloat16", 0.02)])
@pytest.mark.parametrize("max_joint", [512, 0], ids=["small cells", "large cells"])
def test_one_sentence_equals_the_sentence_in_a_batch(monkeypatch, precision, max_joint, atol):
    if keras.backend.backend() == "tensorflow":
        from bilm.layers.tensorflow import lstm_weights

        monkeypatch.setattr(lstm_weights, "MAX_JOINT", max_joint)
    embedder = load(precision=precision, batch_tokens=7)  # long sentences have several windows
    expected = embedder.embed_batch(SEQUENCES)
    for words, wanted in zip(SEQUENCES, expected, strict=True):
        found = embedder.embed_sentence(words)
        np.testing.assert_allclose(found, wanted, atol=atol * np.abs(wanted).max())


def test_rarely_repeated_words_use_no_table(ways):
    load().embed_batch([[f"w{i}" for i in range(start, start + 60)] for start in (0, 30, 45)])
    load(batch_tokens=16).embed_batch(SEQUENCES)  # two places each in a window
    assert ways and True not in ways


# --- packing ---


@given(st.lists(st.integers(1, 60), min_size=1, max_size=300), st.integers(1, 20))
def test_packed_sentences_do_not_overlap(lengths, max_rows):
    lengths = np.array(lengths)
    packing = pack(lengths, max_rows)
    assert 1 <= packing.n_rows <= max_rows
    taken = np.zeros((packing.n_rows, packing.n_steps), int)
    for row, start, length in zip(packing.rows, packing.starts, lengths, strict=True):
        taken[row, start : start + length] += 1
    assert taken.max() == 1 and taken.sum() == lengths.sum()
    # Where a row ends last, none had ended before its last sentence started.
    assert packing.n_steps <= lengths.sum() / packing.n_rows + lengths.max()


def test_packing_of_english_prose_has_little_padding():
    lengths = np.random.default_rng(0).geometric(1 / 26, size=2000) + 2
    packing = pack(lengths)
    assert packing.n_rows == MAX_ROWS
    assert lengths.sum() > 0.99 * packing.n_rows * packing.n_steps


def test_packing_of_one_sentence_has_one_row():
    packing = pack(np.array([7]))
    assert (packing.n_rows, packing.n_steps) == (1, 7)
    assert packing.rows.tolist() == packing.starts.tolist() == [0]


# --- windows computed ahead ---


def test_ahead_yields_all_values_in_order():
    assert list(ahead(iter(range(5)))) == [0, 1, 2, 3, 4]
    assert list(ahead(iter([]))) == []
    assert list(ahead(iter([None, None]))) == [None, None]


def test_ahead_computes_one_value_in_advance():
    started = [threading.Event() for _ in range(4)]

    def values():
        for k, event in enumerate(started):
            event.set()
            yield k

    reader = ahead(values())
    assert next(reader) == 0
    assert started[1].wait(timeout=300)
    assert not started[2].wait(timeout=0.2)
    reader.close()


def test_ahead_raises_errors_after_earlier_values():
    def values():
        yield 1
        raise ValueError("no more")

    reader = ahead(values())
    assert next(reader) == 1
    with pytest.raises(ValueError, match="no more"):
        next(reader)


def test_closing_ahead_leaves_no_thread():
    before = set(threading.enumerate())
    reader = ahead(iter(range(100)))
    next(reader)
    reader.close()
    assert set(threading.enumerate()) <= before
