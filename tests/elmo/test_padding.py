"""Padding anywhere in a row: `Elmo` and `BidirectionalLanguageModel` skip it in both directions."""

import functools

import keras
import numpy as np
import pytest
from elmo_models import FILES, TABLE, WORDS, make, word_layer
from keras import ops

from bilm import Batcher, BidirectionalLanguageModel

strings = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow only")
COMBINED = {
    "mix": {},
    "mix, layer norm": {"do_layer_norm": True},
    "top": {"combine": "top"},
    "average": {"combine": "average"},
    "concat": {"combine": "concat"},
}
ROWS = {  # places of the words among the T of a row; "" elsewhere
    "gap": [0, 2],
    "two gaps": [0, 3, 5],
    "on the left": [3, 4, 5],
    "on both sides": [1, 2],
    "everywhere": [1, 3],
    "at the end": [0, 1, 2],
    "no padding": [0, 1, 2, 3, 4, 5],
    "nothing else": [],
}
SENTENCE = ["The", "bank", "café", "of", "river", "."]
N_TOKENS = 6


def spread(compact, n_steps, left):
    """Move the ids of a sentence with its marks to the places of its words; `left` pads before."""
    ids = np.zeros((len(ROWS), n_steps, *compact.shape[2:]), np.int32)
    for row, places, words in zip(ids, ROWS.values(), compact, strict=True):
        begin = (places[0] if places else N_TOKENS) if left else 0
        end = places[-1] + 2 if places else begin + 1
        row[[begin, *(k + 1 for k in places), end]] = words[: len(places) + 2]
    return ids


def character_ids(left=False):
    sentences = [[SENTENCE[k] for k in places] for places in ROWS.values()]
    compact = Batcher(None, 50).batch_sentences(sentences)
    return compact, spread(compact, N_TOKENS + 2, left)


def word_ids(left=False):
    """Ids of a `TokenBatcher`: `<S>` is 1 and `</S>` is 2."""
    compact = np.zeros((len(ROWS), N_TOKENS + 2), np.int32)
    for row, places in zip(compact, ROWS.values(), strict=True):
        row[: len(places) + 2] = [1, *(k + 3 for k in places), 2]
    return compact, spread(compact, N_TOKENS + 2, left)


def check(found, mask, compact):
    """Compare the vectors of words with the vectors without padding."""
    found, mask, compact = map(ops.convert_to_numpy, (found, mask, compact))
    for row, places in enumerate(ROWS.values()):
        assert np.flatnonzero(mask[row]).tolist() == places
        np.testing.assert_allclose(found[row, places], compact[row, : len(places)], atol=1e-5)
        assert not np.delete(found[row], places, axis=0).any()


@functools.cache
def layer_of(kind, how):
    return kind(**COMBINED[how])


@pytest.mark.parametrize("left", [False, True], ids=["begin mark first", "begin mark at the word"])
@pytest.mark.parametrize("how", COMBINED)
@pytest.mark.parametrize(
    ("kind", "ids"), [(make, character_ids), (word_layer, word_ids)], ids=["characters", "words"]
)
def test_golden_padding_anywhere_in_ids(kind, ids, how, left):
    compact, padded = ids(left)
    layer = layer_of(kind, how)
    padded = ops.convert_to_tensor(padded)
    check(layer(padded), layer.compute_mask(padded), layer(compact))


@strings
@pytest.mark.parametrize("how", ["mix, layer norm", "concat"])
def test_padding_anywhere_in_strings(how):
    rows = [[SENTENCE[k] if k in row else "" for k in range(N_TOKENS)] for row in ROWS.values()]
    layer, tokens = layer_of(make, how), ops.convert_to_tensor(rows)
    check(layer(tokens), layer.compute_mask(tokens), layer(character_ids()[0]))


@pytest.mark.parametrize("left", [False, True], ids=["begin mark first", "begin mark at the word"])
@pytest.mark.parametrize("reads_words", [False, True], ids=["characters", "words"])
def test_golden_padding_anywhere_in_the_language_model(reads_words, left):
    if reads_words:
        files = WORDS / "options.json", WORDS / "weights.hdf5"
        model = BidirectionalLanguageModel(*files, False, WORDS / TABLE)
    else:
        model = BidirectionalLanguageModel(*FILES)
    compact, padded = (word_ids if reads_words else character_ids)(left)
    found, expected = model(padded), model(compact)
    np.testing.assert_array_equal(found["lengths"], [len(places) for places in ROWS.values()])
    for k in range(found["lm_embeddings"].shape[1]):
        check(found["lm_embeddings"][:, k], found["mask"], expected["lm_embeddings"][:, k])
