"""Pooling over windows of steps equals pooling over each word's vectors."""

import tracemalloc

import numpy as np
import pytest
from conftest import golden_cases

from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import OptionsError

FOLDER = golden_cases("inference")[0].values[0]
FILES = FOLDER / "options.json", FOLDER / "weights.hdf5"


@pytest.fixture(scope="module")
def embedder():
    """Eight tokens at a time: sentences run through many windows, rows hold several."""
    return ElmoEmbedder(*FILES, batch_tokens=8)


@pytest.fixture(scope="module")
def sentences():
    rng = np.random.default_rng(0)
    return [[f"w{i}" for i in rng.integers(30, size=n)] for n in (1, 40, 0, 7, 3, 90, 2, 2, 15, 8)]


@pytest.mark.parametrize("layers", ["all", "top", "average", "sum", [2, 0]])
def test_pooling_over_many_windows(embedder, sentences, layers):
    each = embedder.embed_batch(sentences, layers)
    for pool in ("mean", "max"):
        found = embedder.sentence_vectors(sentences, layers, pool=pool)
        for vector, words in zip(found, each, strict=True):
            expected = getattr(words, pool)(axis=-2) if words.size else np.zeros(vector.shape)
            np.testing.assert_allclose(vector, expected, rtol=1e-6, atol=1e-6)


def test_embedder_layers_sum_equals_the_sum_over_layers(embedder, sentences):
    found = embedder.embed_sentence(sentences[1], "sum")
    np.testing.assert_allclose(found, embedder.embed_sentence(sentences[1]).sum(0), rtol=1e-6)
    with pytest.raises(OptionsError, match="expected all, top, average, sum or a list"):
        embedder.embed_sentence(sentences[1], "both")


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
