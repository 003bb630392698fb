"""The shipped model novels-en: hashes of its files, word senses, preference for English."""

import re
from pathlib import Path

import numpy as np
import pytest
from stored_files import resolve

import bilm
from bilm.support.files import sha256_of

NAME = "novels-en"
CARD = (Path(bilm.__file__).parent / "models" / NAME / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def embedder():
    return bilm.ElmoEmbedder(NAME)


def test_model_card_lists_each_file_with_its_hash():
    folder = resolve(NAME)[0].parent
    listed = dict(re.findall(r"^\| `([\w.]+)` \| [\d,]+ \| `(\w{64})` \|$", CARD, re.M))
    there = [path for path in folder.iterdir() if path.name != "README.md"]
    assert listed == {path.name: sha256_of(path) for path in there}


def test_packaged_model_loads_without_network_and_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "none"))
    monkeypatch.setattr("socket.socket.connect", None)
    options, weights = resolve(NAME)
    assert options.is_file() and weights.is_file() and not (tmp_path / "none").exists()


def vector(embedder, sentence, word):
    words = sentence.split()
    found = embedder.embed_sentence(words)[1:].mean(axis=0)[words.index(word)]
    return found / np.linalg.norm(found)


@pytest.mark.parametrize(
    ("word", "sentence", "like", "unlike"),
    [
        ("left", "He held it in his left hand .", "I sat on his left side .", "She left him ."),
        ("kind", "She was kind to me .", "They were very kind .", "It was a kind of dream ."),
        ("spring", "It came up in the spring .", "It rained all spring .", "He made a spring ."),
    ],
)
def test_vectors_separate_word_senses(embedder, word, sentence, like, unlike):
    query = vector(embedder, sentence, word)
    assert query @ vector(embedder, like, word) > query @ vector(embedder, unlike, word) + 0.05


def test_english_word_order_scores_higher():
    sentences = ["She", "was", "not", "there", "."], ["There", ".", "not", "was", "she"]
    ordered, mixed = bilm.score(sentences, model=NAME)
    assert ordered.forward.sum() > mixed.forward.sum() + 5
    assert ordered.backward.sum() > mixed.backward.sum() + 5
