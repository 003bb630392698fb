"""One embedder in several threads, pickled, and left in the middle of its work."""

import gc
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from stored_files import CASE, FILES, check_vectors

from bilm.embedding.embedder import ElmoEmbedder
from bilm.inference.words import TokenCache

N_THREADS = 8


def in_threads(function):
    """Call a function with the number of a thread, in all of them at once."""
    barrier = threading.Barrier(N_THREADS)

    def together(thread):
        barrier.wait()
        return function(thread)

    with ThreadPoolExecutor(N_THREADS) as pool:
        return list(pool.map(together, range(N_THREADS)))


@pytest.fixture(scope="module")
def sentences():
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 9, N_THREADS * 20)
    return [[f"w{word}" for word in rng.integers(300, size=n)] for n in lengths]


@pytest.fixture(scope="module")
def embedder():
    return ElmoEmbedder(*FILES, batch_tokens=32)


@pytest.fixture(scope="module")
def expected(embedder, sentences):
    return embedder.embed_batch(sentences)


@pytest.mark.parametrize("cache_size", [0, pytest.param(4, marks=pytest.mark.slow), 100, 1000])
def test_threads_share_an_embedder(embedder, sentences, expected, cache_size, monkeypatch):
    monkeypatch.setattr(embedder, "_cache", TokenCache(cache_size, embedder._cache._encode))

    def embed(thread):
        found, own = [], slice(thread * 20, (thread + 1) * 20)
        for start in range(own.start, own.stop, 10):
            found += embedder.embed_batch(sentences[start : start + 10])
            if thread % 4 == 3:
                embedder.clear_cache()
        check_vectors(found, expected[own])

    in_threads(embed)
    check_vectors(embedder.embed_batch(sentences), expected)


def test_abandoned_stream_leaves_no_thread_and_no_lock(embedder, sentences, expected):
    before = set(threading.enumerate())
    streams = [embedder.embed_as_completed(sentences) for _ in range(3)]
    for stream in streams:
        next(stream)
    found = embedder.embed_batch(sentences[:40])  # while others are half-way
    check_vectors(found, expected[:40])
    embedder.clear_cache()
    streams[0].close()
    del stream, streams
    gc.collect()
    assert set(threading.enumerate()) <= before


def test_pickled_embedder_opens_its_files_from_another_folder(sentences, tmp_path, monkeypatch):
    """As in a process that was spawned; `tests/support/test_forks.py` starts processes."""
    monkeypatch.chdir(CASE)
    embedder = ElmoEmbedder(FILES[0].name, FILES[1], batch_tokens=8, cache_size=2)
    expected = embedder.embed_batch(sentences[:9])
    monkeypatch.chdir(tmp_path)
    copy = pickle.loads(pickle.dumps(embedder))
    assert (copy.batch_tokens, copy._cache.size) == (8, 2)
    for a, b in zip(copy.embed_batch(sentences[:9]), expected, strict=True):
        np.testing.assert_array_equal(a, b)
