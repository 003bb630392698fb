"""Probabilities of words by their pairs and triples, compared with plain dictionaries."""

from collections import Counter
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from bilm.data.shards import resolve_shards
from bilm.data.vocabulary import Vocabulary
from bilm.errors import DataError
from bilm.scoring.ngrams import DISCOUNT, Ngrams, text_ids

TEXT = "a b c\nb c a b c\nd a b\nb\n"
WORDS = ["<S>", "</S>", "<UNK>", "a", "b", "c"]
END, UNKNOWN = 1, 2


def smoothed(sentences, order):
    """Return the function from a context and a word, ids, to the probability of the word."""
    counts = {order: Counter()}
    for ids in sentences:
        text = [END] * (order - 1) + ids + [END]
        counts[order].update(tuple(text[i - order : i]) for i in range(order, len(text) + 1))
    for n in range(order - 1, 0, -1):  # by the number of different words before them
        counts[n] = Counter(gram[1:] for gram in counts[n + 1])

    def probability(context, word):
        after = {g[-1]: n for g, n in counts[len(context) + 1].items() if g[:-1] == context}
        shorter = probability(context[1:], word) if context else 1 / len(WORDS)
        rest = DISCOUNT * (1 + len(after)) * shorter
        return (max(after.get(word, 0) - DISCOUNT, 0) + rest) / (sum(after.values()) + DISCOUNT)

    return probability


@pytest.mark.parametrize("order", [2, 3])
def test_ngram_probabilities_equal_dictionaries_and_sum_to_1(tmp_path, order):
    (tmp_path / "text").write_text(TEXT)
    vocab = Vocabulary("vocab", words=WORDS)
    ngrams = Ngrams.of(text_ids(resolve_shards(tmp_path / "text"), vocab), vocab, order)
    expected = smoothed([vocab.known_ids(s.split()).tolist() for s in TEXT.splitlines()], order)
    for context in product(range(len(WORDS)), repeat=order - 1):
        if END in context[1:] and context[0] != END:
            continue  # a context does not begin in another sentence
        streams = ([END, END, *context, word] for word in range(len(WORDS)))
        found = [ngrams.probabilities(np.array(ids))[-1] for ids in streams]
        assert found == pytest.approx([expected(context, word) for word in range(len(WORDS))])
        assert sum(found) == pytest.approx(1)
    assert ngrams.has_order(order) and not ngrams.has_order(order + 1)


def test_triples_of_too_many_words_are_refused():
    vocab = SimpleNamespace(filename="words", size=(1 << 21) + len(WORDS), unk=UNKNOWN)
    with pytest.raises(DataError, match="words: 2,097,158 words; expected at most 2,097,151"):
        Ngrams.of(np.array([END, UNKNOWN, END]), vocab, 3)
