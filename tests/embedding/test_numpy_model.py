"""The backend `numpy` of the embedder: golden vectors, equality with Keras, and what it imports."""

import json
import pickle
import subprocess
import sys
from contextlib import contextmanager

import h5py
import numpy as np
import pytest
from command_runs import environment
from conftest import golden_cases
from stored_files import CASE

from bilm.embedding import numpy_model
from bilm.embedding.corpus import dump_bilm_embeddings
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.numpy_model import SMALL_WORK, NumpyBiLM, is_small
from bilm.errors import OptionsError
from bilm.options.model_options import dense_sizes

ATOL = 1e-5
LINES = ["The bank closed .", "", "x", "A longer word is electroencephalography"]
SENTENCES = [line.split() for line in LINES]
EMBED = """
import sys
from bilm.commands.main import cli, run
status = run(cli, "bilm", sys.argv[1:])
print(status, "keras" in sys.modules, "tensorflow" in sys.modules)
"""
BLAS = """
import json, threading
import numpy, threadpoolctl
from bilm.embedding.numpy_model import one_blas_thread
def now():
    found = threadpoolctl.threadpool_info()
    return sorted({one["num_threads"] for one in found if one["user_api"] == "blas"})
with threadpoolctl.threadpool_limits(2, "blas"):
    found = [None] * 5
    if now() == [2]:
        try:
            with one_blas_thread():
                alone = now()
                with one_blas_thread():
                    nested = now()
                raise KeyError
        except KeyError:
            after_error = now()
        leave = threading.Event()
        thread = threading.Thread(target=leave.wait)
        thread.start()
        with one_blas_thread():
            several = now()
        leave.set()
        thread.join()
        found = [alone, nested, after_error, several, now()]
print(json.dumps(found))
"""


@pytest.mark.parametrize("folder", golden_cases("inference"))
def test_golden_inference_numpy(folder):
    files = folder / "options.json", folder / "weights.hdf5"
    embedder = ElmoEmbedder(*files, backend="numpy")
    batch = json.loads((folder / "batches.json").read_text())[0]
    with h5py.File(folder / "expected.hdf5") as file:
        expected = file["batch_0/lm_embeddings"][...]
    found = embedder.embed_batch(batch)
    for vectors, row, words in zip(found, expected, batch, strict=True):
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, row[:, : len(words)], atol=ATOL)


def test_numpy_equals_keras_with_many_windows_and_rows(stored_embedder):
    sentences = SENTENCES * 9
    embedder = ElmoEmbedder(CASE, backend="numpy", batch_tokens=16)
    found = embedder.embed_batch(sentences)
    for a, b in zip(found, stored_embedder.embed_batch(sentences), strict=True):
        np.testing.assert_allclose(a, b, atol=ATOL)
    copy = pickle.loads(pickle.dumps(embedder))
    assert isinstance(copy.model, NumpyBiLM)
    np.testing.assert_array_equal(copy.embed_sentence(["x"]), embedder.embed_sentence(["x"]))


@pytest.mark.parametrize("settings", [{"precision": "bfloat16"}, {"backend": "jax"}])
def test_numpy_refuses_other_settings(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        ElmoEmbedder(CASE, **{"backend": "numpy", **settings})


def test_numpy_refuses_models_that_read_words(stored_embedder):
    class Words:
        options = stored_embedder.options.with_table()

    with pytest.raises(OptionsError, match="character CNN"):
        NumpyBiLM(Words())
    assert not is_small(Words.options, 1)


def test_small_work_is_limited_by_tokens_and_weights(stored_embedder):
    options = stored_embedder.options
    most = SMALL_WORK // sum(dense_sizes(options))
    assert is_small(options, most)
    assert not is_small(options, most + 1)


@pytest.mark.parametrize(
    ("variables", "option", "uses_keras"),
    [
        ({}, [], False),
        ({"KERAS_BACKEND": "tensorflow"}, [], True),
        ({"KERAS_BACKEND": "tensorflow"}, ["--backend", "numpy"], False),
        ({}, ["--backend", "keras"], True),
    ],
)
def test_embed_of_a_few_lines_imports_keras_only_if_it_is_chosen(
    tmp_path, stored_embedder, variables, option, uses_keras
):
    corpus, output = tmp_path / "corpus.txt", tmp_path / "vectors.hdf5"
    corpus.write_text("\n".join(LINES) + "\n")
    settings = environment(**variables)
    if not variables:
        settings.pop("KERAS_BACKEND", None)
    done = subprocess.run(
        [sys.executable, "-c", EMBED, "embed", "--model", CASE, "--input", corpus]
        + ["--output", output, *option],
        env=settings,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1:] == [f"0 {uses_keras} {uses_keras}"], done.stderr
    with h5py.File(output) as file:
        for k, vectors in enumerate(stored_embedder.embed_batch(SENTENCES)):
            np.testing.assert_allclose(file[str(k)], vectors, atol=ATOL)


def test_corpus_embedded_with_numpy_equals_keras(tmp_path, stored_embedder):
    corpus, output = tmp_path / "corpus.txt", tmp_path / "vectors.hdf5"
    corpus.write_text("\n".join(LINES * 20) + "\n")
    dump_bilm_embeddings(None, corpus, CASE, None, output, backend="numpy", part_sentences=30)
    with h5py.File(output) as file:
        for k, vectors in enumerate(stored_embedder.embed_batch(SENTENCES * 20)):
            np.testing.assert_allclose(file[str(k)], vectors, atol=ATOL)


def test_embed_refuses_numpy_with_another_precision(run_here, tmp_path):
    arguments = "--model", CASE, "--input", tmp_path, "--output", tmp_path / "x.npz"
    done = run_here("bilm embed", *arguments, "--backend", "numpy", "--precision", "bfloat16")
    assert done.returncode == 1
    assert "--backend numpy computes in float32" in done.stderr


def test_single_sentence_is_computed_by_one_blas_thread_if_the_cells_are_small_or_the_machine_busy(
    monkeypatch, stored_embedder
):
    blocks = []

    @contextmanager
    def recorded():
        blocks.append(True)
        yield

    monkeypatch.setattr(numpy_model, "one_blas_thread", recorded)
    embedder = ElmoEmbedder(CASE, backend="numpy", cache_size=100)
    expected = stored_embedder.embed_batch(SENTENCES)
    for largest, load, few in [(1 << 20, 0.0, True), (0, 0.0, False), (0, 1e6, True)]:
        monkeypatch.setattr(numpy_model, "ONE_THREAD_BYTES", largest)
        monkeypatch.setattr(numpy_model, "machine_load", lambda load=load: load)
        blocks.clear()
        found = embedder.embed_sentence(SENTENCES[0])
        np.testing.assert_allclose(found, expected[0], atol=ATOL)
        assert bool(blocks) is few


def test_blas_has_one_thread_in_a_block_unless_python_has_several_threads():
    """Another thread of Python may save and restore the number, which belongs to the process."""
    command = [sys.executable, "-c", BLAS]
    done = subprocess.run(command, check=True, capture_output=True, env=environment())
    alone, nested, after_error, several, after = json.loads(done.stdout)
    if alone is None:
        pytest.skip("NumPy's BLAS library cannot be controlled")
    assert (alone, nested, after_error, several, after) == ([1], [1], [2], [2], [2])
