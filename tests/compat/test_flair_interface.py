"""`bilm.compat.flair` in the real flair: a tagger, trained, saved and loaded."""

import copy
import pickle
import random
import shutil
import warnings

import numpy as np
import pytest
from moved_scripts import run_moved

with warnings.catch_warnings():  # flair imports packages that warn
    warnings.simplefilter("ignore")
    pytest.importorskip("flair", reason="make test-clients has flair")
    from flair.data import Sentence
    from flair.embeddings import StackedEmbeddings
    from flair.embeddings.base import load_embeddings

    from bilm.compat.flair import ELMoEmbeddings
from bilm import ElmoEmbedder
from bilm.errors import OptionsError, WeightsError
from bilm.storage.finding.locate import packaged

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore")]
SHAPE = ["DET", "ADJ", "NOUN", "VERB", "DET", "NOUN", "PUNCT"]
TAGS = {
    "DET": ["the", "a"], "ADJ": ["small", "old", "green"], "NOUN": ["dog", "house", "tree", "cat"],
    "VERB": ["sees", "finds", "likes"], "PUNCT": ["."],
}  # fmt: skip


@pytest.fixture
def data(tmp_path):
    """A hundred tagged sentences."""
    draw = random.Random(1)
    for name, n in (("train", 80), ("test", 20)):
        words = [f"{draw.choice(TAGS[tag])} {tag}\n" for tag in SHAPE * n]
        words[len(SHAPE) - 1 :: len(SHAPE)] = [". PUNCT\n\n"] * n
        (tmp_path / f"{name}.txt").write_text("".join(words))
    return tmp_path


def test_script_of_a_flair_tagger_runs_with_another_import(data, monkeypatch):
    model, folder = shutil.copytree(packaged()["novels-en"], data / "model"), data / "tagger"
    homes = "flair.embeddings", "bilm.compat.flair"
    move = (f"from {home} import ELMoEmbeddings" for home in homes)
    names = run_moved(monkeypatch, "flair_tagger.py", *move, model, data, folder)
    assert names["result"]["test_score"] > 0.8
    assert names["tags"] == names["loaded_tags"] == SHAPE
    assert (folder / "final-model.pt").stat().st_size < 5e6  # without the biLM
    with open(model / "weights.hdf5", "ab") as file:
        file.write(b"x")
    with pytest.raises(WeightsError, match=r"files have changed .* since the saved embeddings"):
        names["SequenceTagger"].load(folder / "final-model.pt")


@pytest.mark.parametrize("mode", ["all", "top", "average"])
def test_flair_vectors_equal_those_of_the_embedder(mode, stored_model):
    files = stored_model / "options.json", stored_model / "weights.hdf5"
    embeddings = ELMoEmbeddings("mine", *files, embedding_mode=mode)
    words = ["The", "grass", "is", "green", "."]
    layers = ElmoEmbedder(stored_model).embed_sentence(words)
    expected = {"all": np.concatenate(layers, axis=1), "top": layers[-1], "average": layers.mean(0)}
    copies = copy.deepcopy(embeddings), pickle.loads(pickle.dumps(embeddings))
    saved = load_embeddings(embeddings.save_embeddings())
    for each in (embeddings, *copies, saved, StackedEmbeddings([embeddings])):
        sentence = Sentence(words)
        each.embed(sentence)
        found = np.stack([token.embedding.cpu().numpy() for token in sentence])
        np.testing.assert_allclose(found, expected[mode], atol=1e-5)
        assert each.embedding_length == found.shape[1]
    with pytest.raises(OptionsError, match="embedding_mode is 'sum', expected one of all, top"):
        ELMoEmbeddings(str(stored_model), embedding_mode="sum")
    with pytest.raises(WeightsError, match=r"smal: found neither .* did you mean small"):
        ELMoEmbeddings("smal")
