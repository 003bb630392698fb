"""Public names: `~` in paths, shapes of string inputs, TensorFlow 1 graphs, copies."""

import copy
import pickle

import pytest
import tensorflow as tf
from conftest import golden_cases

import bilm
from bilm.errors import BilmError, WeightsError

CASES = [c.values[0] for c in golden_cases("inference")]
CASE = next(folder for folder in CASES if (folder / "token_embeddings.hdf5").exists())


def test_tilde_is_expanded_in_every_path(monkeypatch):
    monkeypatch.setenv("HOME", str(CASE))
    files = "~/options.json", "~/weights.hdf5"
    n_words = bilm.Vocabulary("~/vocab.txt").size
    assert bilm.UnicodeCharsVocabulary("~/vocab.txt", 50).size == n_words
    assert bilm.Elmo(*files, embedding_weight_file="~/token_embeddings.hdf5").n_words == n_words
    with pytest.raises(WeightsError, match=f"{CASE}/none.hdf5: no such file; expected a softmax"):
        bilm.load_scorer(files[0], weight_file=files[1], softmax_file="~/none.hdf5")


@pytest.mark.parametrize(
    "given", [tf.constant([[["the"]]]), tf.strings.split(["the cat sat", "hello"])]
)
def test_elmo_refuses_strings_of_other_shapes(given):
    layer = bilm.Elmo(CASE)
    with pytest.raises(ValueError, match=r"strings have shape \(.*, expected tokens \(B, T\)"):
        layer(given)


def test_model_in_a_tensorflow_1_graph_is_refused():
    with tf.Graph().as_default(), pytest.raises(BilmError, match="remove disable_eager_execution"):
        bilm.BidirectionalLanguageModel(CASE)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_copy_of_bidirectional_language_model_is_refused(copied):
    model = bilm.BidirectionalLanguageModel(CASE)
    with pytest.raises(BilmError, match=r"use bilm\.ElmoEmbedder or bilm\.Elmo, which"):
        copied(model)
