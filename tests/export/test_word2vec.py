"""`bilm export --to word2vec`: vectors of layer 0, read by the real gensim."""

import numpy as np
import pytest
from command_runs import assert_fails, succeeded
from stored_files import CASE
from tiny_runs import tiny_run

import bilm

WORDS = ["bank", "日本語", "The", "<S>", "bank", "", "of"]
DISTINCT = ["bank", "日本語", "The", "of"]


@pytest.mark.parametrize("model", [CASE, "words"], ids=["characters", "words"])
def test_export_word2vec_contains_layer_0(run_here, tmp_path, model):
    model = tiny_run(model) if model == "words" else model
    (tmp_path / "words.txt").write_text("\n".join(WORDS), encoding="utf-8")
    command = ["bilm export", "--model", model, "--to", "word2vec", "--output", tmp_path / "a.vec"]
    succeeded(run_here(*command, "--words", tmp_path / "words.txt"))
    head, *lines = (tmp_path / "a.vec").read_text(encoding="utf-8").splitlines()
    found = {word: np.array(numbers, np.float32) for word, *numbers in map(str.split, lines)}
    embedder = bilm.ElmoEmbedder(model)
    width = embedder.dim // len(embedder.options.directions)
    assert list(found) == DISTINCT and head == f"{len(DISTINCT)} {width}"
    for word in DISTINCT:
        expected = embedder.embed_sentence([word], [0])[0, 0, :width]
        # Products of other shapes add their terms in another order: the tolerance of vectors.
        np.testing.assert_allclose(found[word], expected, rtol=0, atol=1e-5)
    (tmp_path / "words.txt").write_text("a\na b\n")
    assert_fails(run_here(*command, "--words", tmp_path / "words.txt"), "'a b' contains a blank")
    assert_fails(run_here(*command), "--words", status=2)


@pytest.mark.clients
def test_script_of_a_gensim_user_finds_similar_words(run_here, tmp_path):
    pytest.importorskip("gensim", reason="make test-clients")
    from gensim.models import KeyedVectors

    (tmp_path / "words.txt").write_text("\n".join(["bank", "banks", "banker", "river"]))
    files = ["--words", tmp_path / "words.txt", "--output", tmp_path / "words.vec"]
    succeeded(run_here("bilm export", "--model", CASE, "--to", "word2vec", *files))
    vectors = KeyedVectors.load_word2vec_format(tmp_path / "words.vec")
    assert vectors.index_to_key == ["bank", "banks", "banker", "river"]
    a, b = bilm.ElmoEmbedder(CASE).embed_batch([["bank"], ["banks"]], [0])
    cosine = np.vdot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)
    assert dict(vectors.most_similar("bank"))["banks"] == pytest.approx(cosine, abs=1e-5)
