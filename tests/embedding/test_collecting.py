"""Vectors are collected from windows of packed steps, and pooled, bit for bit as one by one."""

import tracemalloc

import numpy as np
import pytest
from stored_files import FILES

from bilm.embedding.collecting import SELECTIONS, Selection, collected
from bilm.embedding.embedder import ElmoEmbedder
from bilm.inference.backend import Backend, Stacks
from bilm.storage.stored_model import open_model


def test_pooling_memory_does_not_grow_with_sentence_length():
    embedder, peaks = ElmoEmbedder(*FILES, batch_tokens=64), {}
    embedder.embed_sentence(list("ACDEFGHIKL") * 50)  # what the first call makes stays
    for n_words in (500, 1500):
        for pool in ("none", "mean"):
            sentence = [list("ACDEFGHIKL") * (n_words // 10)]
            tracemalloc.start()
            for _ in embedder.embed_as_completed(sentence, pool=pool):
                pass
            peaks[n_words, pool] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    n_bytes = 1000 * embedder.n_layers * embedder.dim * 4  # small ones: 240 per word
    assert peaks[1500, "none"] - peaks[500, "none"] > n_bytes
    # Words and their ids, which stay, take less than 120.
    assert peaks[1500, "mean"] - peaks[500, "mean"] < n_bytes / 2


class Ages(Stacks):
    """Stacks whose outputs depend on the token, its number in its sentence, and the layer."""

    def start(self, table, n_rows):
        return table, [np.full(n_rows, -1)]

    def run_window(self, table, window, state):
        ages = []
        for fresh in window.fresh.T:
            state = [np.where(fresh, 0, state[0] + 1)]
            ages += state
        ages = np.array(ages).T
        return {d: aged(table[places], ages) for d, places in window.places.items()}, state


def aged(vectors, ages):
    """Return the outputs of three layers, (3, ..., P), for tokens with these numbers, (...)."""
    added = np.multiply.outer([0.001, 0.002, 0.003], ages)[..., None]
    return vectors + added.astype(np.float32)


def plainly(table, tokens, selection):
    """Return the vectors of a sentence: its tokens with their marks, -1 for padding."""
    is_read = tokens >= 0
    vectors = np.zeros((3, len(tokens), *selection.shape[-1:]), np.float32)
    for direction, features in selection.features.items():
        places = np.flatnonzero(is_read)[:: 1 if direction == "forward" else -1]
        vectors[:, places, features] = aged(table[tokens[places]], np.arange(len(places)))
    vectors = selection.select(vectors)[..., 1:-1, :]
    words = vectors[..., is_read[1:-1], :]
    if selection.pool == "none":
        return vectors
    if not words.size:
        return np.zeros(selection.shape, np.float32)
    if selection.pool == "max":
        return words.max(axis=-2)
    return (words.sum(axis=-2, dtype=np.float64) / words.shape[-2]).astype(np.float32)


@pytest.mark.parametrize("pool", ["none", "mean", "max"])
@pytest.mark.parametrize("layers", [*SELECTIONS, [2, 0]], ids=str)
@pytest.mark.parametrize("bidirectional", [True, False])
def test_collected_vectors_equal_those_of_single_sentences(layers, pool, bidirectional):
    options = open_model(*FILES).options.replace(bidirectional=bidirectional)
    selection = Selection(options, layers, pool, normalize=False)
    rng = np.random.default_rng(0)
    table = rng.random((9, options.lstm.projection_dim), np.float32)
    backend = Backend(options, None, np.asarray, Ages(options))
    for batch_tokens in (1, 5, 64, 1000):
        sentences = []
        for n_words in rng.integers(0, rng.choice([2, 9, 40]), rng.integers(1, 30)):
            sentences.append(np.array([0, *rng.integers(-1, len(table), n_words), 1]))
        tokens, lengths = np.concatenate(sentences), np.array(list(map(len, sentences)))
        found = dict(collected(backend, table, tokens, lengths, selection, batch_tokens))
        assert sorted(found) == list(range(len(sentences)))
        for k, sentence in enumerate(sentences):
            np.testing.assert_array_equal(found[k], plainly(table, sentence, selection))
            assert found[k].dtype == np.float32
