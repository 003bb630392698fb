"""The 5-gram model of the benchmarks: normalized, and exact on a text that is counted by hand."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from peer_models import KneserNey, _discounts

BOS, EOS = 0, 1
SENTENCES = [np.array(words) for words in ([2, 3, 4], [2, 3], [5], [], [2, 3, 4, 3], [4, 4, 4, 4])]


@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("context", [[], [2], [2, 3], [6, 3], [4, 4, 4, 4, 4], [2, 3, 4, 3, 6]])
def test_probabilities_of_all_words_sum_to_one(order, context):
    model = KneserNey(SENTENCES, BOS, EOS, 7, order)
    sentences = [np.array([*context, word]) for word in range(1, 7)]
    found = [model.log_probabilities([s])[len(context)] for s in sentences]
    assert np.exp(found).sum() == pytest.approx(1)


def test_bigrams_equal_the_formula():
    """Of [2, 3], [2], [3]: the counts are too few for estimated discounts: 0.5, 1, 1.5."""
    model = KneserNey([np.array(words) for words in ([2, 3], [2], [3])], BOS, EOS, 4, 2)
    # Words by number of different words before them: 2: <S>; 3: 2, <S>; </S>: 3, 2.
    total, kept = 5, 0.5 + 1 + 1
    unigram = {2: 0.5 / total, 3: 1 / total, EOS: 1 / total}
    unigram = {word: p + kept / total / 3 for word, p in unigram.items()}
    after_start = {2: 1 / 3, 3: 0.5 / 3}  # <S> 2 twice, <S> 3 once
    after_2 = {3: 0.5 / 2, EOS: 0.5 / 2}
    found = np.exp(model.log_probabilities([np.array([2, 3])]))
    expected = [
        after_start[2] + 1.5 / 3 * unigram[2],
        after_2[3] + 1 / 2 * unigram[3],
    ]
    np.testing.assert_allclose(found[:2], expected)
    # After 3 only </S> was seen, twice.
    np.testing.assert_allclose(found[2], 1 / 2 + 1 / 2 * unigram[EOS])


def test_discounts_are_those_of_chen_and_goodman():
    counts = np.repeat([1, 2, 3, 4], [10, 5, 3, 2])
    y = 10 / 20
    np.testing.assert_allclose(
        _discounts(counts), [0, 1 - 2 * y * 5 / 10, 2 - 3 * y * 3 / 5, 3 - 4 * y * 2 / 3]
    )
