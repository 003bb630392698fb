"""What a sentence is: a list of words, not a string."""

from __future__ import annotations

from collections.abc import Iterable

from bilm.errors import DataError


def checked_sentence(sentence: Iterable[str], name: str) -> list[str]:
    """Return the words of a sentence. Raises: DataError, with its name, if it is no list of words.

    A string is refused too: it would pass for a list of words of one letter.
    """
    is_list = isinstance(sentence, Iterable) and not isinstance(sentence, str | bytes)
    words = list(sentence) if is_list else [None]
    if not all(isinstance(word, str) for word in words):
        found = f"{name} is {repr(sentence)[:60]}"
        raise DataError(f"{found}; a sentence is a list of words, so split a string first")
    return words


def checked_sentences(sentences: Iterable[Iterable[str]]) -> list[list[str]]:
    """Return the words of each sentence. Raises: DataError if they are no list of sentences."""
    if isinstance(sentences, str | bytes):
        raise DataError(f"a batch is a list of sentences, not the string {sentences[:40]!r}")
    return [checked_sentence(words, f"sentence {i}") for i, words in enumerate(sentences)]
