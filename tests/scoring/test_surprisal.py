"""Surprisal: equal to `Scorer` in bits, aligned with the words, cumulative by direction."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("checkpoints are TensorFlow's", allow_module_level=True)
from scorers import MODELS, WORDS, model_of

from bilm.analysis import word_surprisals
from bilm.errors import DataError
from bilm.scoring.scorer import Scorer

TEXT = [["the", "cat", "sat"], ["unheard", "日本語", "😀e\u0301"], [], ["mat"] * 40]


@pytest.fixture(scope="module", params=MODELS)
def scorer(request):
    return Scorer(model_of(request.param), WORDS)


def test_surprisal_in_nats_equals_scorer_exactly(scorer):
    found = list(word_surprisals(scorer, TEXT))
    assert [each.word for each in found] == TEXT
    for each, score in zip(found, scorer.score(TEXT), strict=True):
        nats = (each.forward * -np.log(2)).astype(np.float32)
        np.testing.assert_array_equal(nats, score.forward[:-1])
        if score.backward is None:
            assert np.isnan(each.backward).all() and len(each.backward) == len(each.word)
        else:
            nats = (each.backward * -np.log(2)).astype(np.float32)
            np.testing.assert_array_equal(nats, score.backward[1:])
        np.testing.assert_array_equal(each.known, score.is_known[:-1])


def test_surprisal_is_the_negative_binary_logarithm_of_the_probability():
    scorer = Scorer(model_of("chars"), WORDS)
    (found,) = word_surprisals(scorer, [["the", "cat", "sat"]])
    for position, word in enumerate(found.word):
        (logs,) = scorer.log_probabilities(found.word, [position])
        for direction in ("forward", "backward"):
            probability = np.exp(logs[direction][len(WORDS) - 1 - WORDS[::-1].index(word)])
            bits = getattr(found, direction)[position]
            assert 2**-bits == pytest.approx(probability, rel=1e-3)


def test_cumulative_surprisal_is_that_of_the_words_read_so_far_in_each_direction():
    scorer = Scorer(model_of("chars"), WORDS)
    (found,) = word_surprisals(scorer, [["the", "cat", "sat", "on"]])
    np.testing.assert_allclose(np.diff(found.forward_cumulative), found.forward[1:])
    np.testing.assert_allclose(-np.diff(found.backward_cumulative), found.backward[:-1])
    assert found.forward_cumulative[0] == found.forward[0]
    assert found.backward_cumulative[-1] == found.backward[-1]


def test_surprisal_has_word_lengths_in_characters_and_marks_unknown_words(scorer):
    found = list(word_surprisals(scorer, TEXT))[1]
    assert found.characters.tolist() == [7, 3, 3]
    assert found.known.tolist() == [False, True, False]
    fields = found._asdict()
    assert {len(values) for values in fields.values()} == {3}
    assert [str(values.dtype) for values in list(fields.values())[1:]] == [
        "int64", "bool", *["float64"] * 4
    ]  # fmt: skip


def test_surprisal_refuses_strings():
    with pytest.raises(DataError, match=r"sentence 0 is 'the cat'.*expected a list of words"):
        next(word_surprisals(Scorer(model_of("words"), WORDS), ["the cat"]))
