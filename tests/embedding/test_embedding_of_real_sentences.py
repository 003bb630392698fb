"""Vectors of real sentences do not depend on their order, batch or neighbours."""

import os
from pathlib import Path

import numpy as np
import pytest
from conftest import golden_cases

from bilm import ElmoEmbedder
from bilm.data.shards import Shards

DATA = Path(os.environ.get("BILM_DATA") or Path(__file__).parents[3] / "shared" / "data")
CASE = golden_cases("inference")[0].values[0]


@pytest.fixture(scope="module")
def sentences():
    files = [
        DATA / "classics_en" / "dev.txt",
        *(DATA / "nonascii" / f for f in ("ru.txt", "ja.txt")),
    ]
    if not all(path.exists() for path in files):
        pytest.skip("set BILM_DATA to a folder with classics_en/dev.txt, nonascii/{ru,ja}.txt")
    found = []
    for path, n in zip(files, (80, 60, 58), strict=True):
        found += [words for words, _ in zip(Shards([path]).sentences(), range(n), strict=False)]
    found += [["a", "w" * 80, "я" * 40, "b"], ["an", "emoji", "😀", "!"]]
    assert len(found) == 200
    return found


@pytest.mark.slow
def test_vectors_do_not_depend_on_order_batch_or_neighbours(sentences):
    embedder = ElmoEmbedder(CASE / "options.json", CASE / "weights.hdf5")
    expected = embedder.embed_batch(sentences)
    order = np.random.default_rng(0).permutation(len(sentences))
    shuffled = embedder.embed_batch([sentences[i] for i in order])
    rebatched = ElmoEmbedder(
        CASE / "options.json", CASE / "weights.hdf5", batch_tokens=100, cache_size=50
    ).embed_batch(sentences)
    for place, i in enumerate(order):
        np.testing.assert_allclose(shuffled[place], expected[i], atol=1e-5)
    for i, words in enumerate(sentences):
        np.testing.assert_allclose(rebatched[i], expected[i], atol=1e-5)
        np.testing.assert_allclose(embedder.embed_sentence(words), expected[i], atol=1e-5)
