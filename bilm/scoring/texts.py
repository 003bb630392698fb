"""Sentences to score: checked, with the sentences before them, or in rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bilm.data.tokenization import MAX_PARTS, check_batch, checked_sentence
from bilm.errors import DataError
from bilm.inference.reading import Text


def checked_words(sentence: Iterable[str], name: str) -> list[str]:
    """Return the words of a sentence. Raises: DataError, also for padding and for texts."""
    words = checked_sentence(sentence, name)
    for i, word in enumerate(words):
        if not word or len(word.split()) > MAX_PARTS:
            expected = "expected a word: remove padding, split a text into words"
            raise DataError(f"{name}, word {i} is {word[:40]!r}; {expected}")
    return words


def check_position(position: int, n_words: int) -> None:
    """Raise DataError if an index into a sentence is out of range or not an integer."""
    is_integer = isinstance(position, int | np.integer) and not isinstance(position, bool)
    if not is_integer or not 0 <= position < n_words:
        raise DataError(
            f"position is {position!r}, but the sentence has {n_words} words; "
            f"expected an integer, 0 or more and less than {n_words}"
        )


def checked_sentences(sentences: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Yield the words of each sentence. Raises: DataError if one is not a list of words."""
    check_batch(sentences)
    for number, sentence in enumerate(sentences):
        yield checked_words(sentence, f"sentence {number}")


def with_context(sentences: Iterable[list[str]], n_before: int) -> Iterator[Text]:
    """Yield each sentence after the sentences before it, at most `n_before` of them."""
    before: deque[list[str]] = deque(maxlen=n_before)
    for words in sentences:
        yield [*before, words]
        before.append(words)


def in_rows(sentences: Iterable[list[str]], n_rows: int) -> list[Text]:
    """Assign each sentence to the row that ends first, or the first of several such rows; return
    the rows that are not empty."""
    rows: list[Text] = [[] for _ in range(n_rows)]
    ends = [0] * n_rows
    for words in sentences:
        row = ends.index(min(ends))
        rows[row].append(words)
        ends[row] += len(words) + 1
    return [text for text in rows if text]


def n_predictions(text: Text) -> int:
    """Return the number of predictions of a direction: of the words and ends of sentences."""
    return sum(len(words) + 1 for words in text)
