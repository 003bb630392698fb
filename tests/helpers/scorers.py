"""Language models with random weights, and a comparison of their scores."""

import functools

import keras
import numpy as np
from options_examples import CHAR_CNN, LSTM

from bilm.language_model import BiLM
from bilm.options.model_options import ModelOptions
from bilm.storage import names as weights

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
    for variable in weights.stored_variables(model).values():
        variable.assign(np.random.default_rng(5).normal(size=variable.shape) * 0.7)
    return model


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
