"""Language models with random weights, and a comparison of their scores."""

import functools
import json

import keras
import numpy as np
from options_examples import CHAR_CNN, LSTM
from stored_files import stored_values

from bilm.inference.keras import keras_backend
from bilm.language_model import BiLM
from bilm.options.model_options import ModelOptions
from bilm.scoring.perplexity import TextLosses
from bilm.scoring.scorer import Scorer
from bilm.storage.hdf5 import save_hdf5
from bilm.storage.stored_model import open_model
from bilm.tensors import is_bilm

MARKS = ["<S>", "</S>", "<UNK>"]
WORDS = ["the", "cat", "sat", "on", "Москва", "", "mat", "the", *MARKS, "日本語"]
MODELS = {
    "chars": {"char_cnn": CHAR_CNN, "bidirectional": True},
    "words": {"bidirectional": True},
    "forward shared": {"bidirectional": False, "share_embedding_softmax": True},
}
ATOL = 5e-5  # log-probabilities reach -20, where float32 numbers are 2e-6 apart


@functools.cache
def model_of(name):
    """Return a model whose random weights give distributions with distinct ranks."""
    keras.utils.set_random_seed(3)
    options = ModelOptions.from_dict({"lstm": LSTM, **MODELS[name]})
    model = BiLM(options, n_tokens=len(WORDS), softmax=True)
    model.build()
    for variable in model.stored_variables().values():
        variable.assign(np.random.default_rng(5).normal(size=variable.shape) * 0.7)
    return model


backend_of = functools.cache(keras_backend)  # compiled once for all scorers of a model


def scorer_of(model, batch_tokens=1024, words=WORDS):
    """Return a scorer of a model in memory."""
    return Scorer(backend_of(model), words, batch_tokens)


def perplexity_of(scores):
    """Return the perplexity of scored sentences."""
    losses = TextLosses()
    for score in scores:
        losses.add(score)
    return losses.perplexities("text")[0]


def export(model, folder):
    """Write a model with its softmax; return it as a stored model."""
    values = stored_values(model)
    softmax = {name: values.pop(name) for name in list(values) if not is_bilm(name)}
    save_hdf5(folder / "weights.hdf5", values)
    words = np.array(WORDS, dtype=object)
    save_hdf5(folder / "weights_softmax.hdf5", {**softmax, "vocabulary": words})
    (folder / "options.json").write_text(json.dumps(model.options.for_export()))
    return open_model(folder)


def check(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.tokens == b.tokens and a.is_known.tolist() == b.is_known.tolist()
        for x, y in ((a.forward, b.forward), (a.backward, b.backward)):
            assert (x is None) == (y is None)
            if x is not None:
                assert x.dtype == np.float32 and x.shape == y.shape
                np.testing.assert_allclose(x, y, atol=ATOL)


def one(scorer, words):
    return next(scorer.score([words]))
