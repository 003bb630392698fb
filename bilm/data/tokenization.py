"""Sentences as lists of words: checks them, and splits text into sentences and words."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import chain, groupby, islice
from typing import Any

from bilm.errors import DataError
from bilm.support.imports import optional

SplitWords = Callable[[str], list[str]]
UNORDERED = (str, bytes, Set, Mapping)  # iterables that are not lists of words
MAX_PARTS = 2  # of a word with blanks, such as "10 000"; more is a text
MAX_REPR = 60  # characters of a value in a message
PART_WORDS = 10_000  # words of a paragraph that are split into sentences at a time
RARE_LETTERS = "".join(map(chr, range(0x1E01, 0x1E95, 2)))  # such as ḁ, that spaCy keeps in words


def checked_sentence(sentence: Iterable[str], name: str) -> list[str]:
    """Return the words of a sentence as a list. Raises: DataError, with the name of the sentence,
    for a string, whose letters would count as words, for sets and mappings, which have no order,
    and for other words than strings."""
    if not isinstance(sentence, Iterable) or isinstance(sentence, UNORDERED):
        raise DataError(
            f"{name} is {_described(sentence)}; expected a list of words: split a string into "
            "words, sort a set"
        )
    words = list(sentence)
    for i, word in enumerate(words):
        if not isinstance(word, str):
            raise DataError(f"{name}, word {i} is {_described(word)}; expected a string")
    return words


def _described(value: object) -> str:
    """Return the start of a value and its type, for a message."""
    return f"{repr(value)[:MAX_REPR]} ({type(value).__name__})"


def check_batch(sentences: object) -> None:
    """Raise DataError for a string, and for a set or mapping, which has no order of sentences."""
    if isinstance(sentences, UNORDERED):
        raise DataError(f"the batch is {repr(sentences)[:MAX_REPR]}; expected a list of sentences")


def checked_sentences(sentences: Iterable[Iterable[str]]) -> list[list[str]]:
    """Return the words of each sentence. Raises: DataError if the batch is not a list of them."""
    check_batch(sentences)
    return [checked_sentence(words, f"sentence {i}") for i, words in enumerate(sentences)]


# --- splitting text ---


def tokenizer(language: str | None = None) -> SplitWords:
    """Return a function that splits a text into words, at whitespace or by spaCy's rules for a
    language, such as `en`.

    Raises: BilmError if spaCy is not installed; DataError if spaCy does not support the language.
    """
    if language is None:
        return str.split
    make_doc = _spacy_pipeline(language).make_doc
    return lambda text: _words(make_doc(text))


def keep_whole(split: SplitWords, marks: re.Pattern[str]) -> SplitWords:
    """Return a function that splits a text into words like `split`, to which marks are letters."""

    def split_around_marks(text: str) -> list[str]:
        letter = next(letter for letter in RARE_LETTERS if letter not in text)
        in_order = (match[0] for match in marks.finditer(text))
        words = split(marks.sub(letter, text))
        return [re.sub(letter, lambda _: next(in_order), word) for word in words]

    return split_around_marks


def sentence_splitter(
    language: str, paragraph_per_line: bool = False
) -> Callable[[Iterable[str]], Iterator[list[str]]]:
    """Return a function that splits texts into sentences, and each sentence into words.

    A sentence ends at blank lines and headings, or with `paragraph_per_line` at each line's end, at
    `.`, `!`, `?` and their like, unless spaCy treats them as part of a word (`Mr.`). Raises: as
    `tokenizer`.
    """
    pipeline = _spacy_pipeline(language)
    pipeline.add_pipe("sentencizer")

    def split(texts: Iterable[str]) -> Iterator[list[str]]:
        lines = (line.strip() for text in texts for line in text.split("\n"))
        if paragraph_per_line:
            for line in lines:
                yield from _sentences(pipeline, [line])
            return
        for kind, paragraph in groupby(lines, _kind_of_line):
            if kind != "blank":
                yield from _sentences(pipeline, paragraph)

    return split


def _kind_of_line(line: str) -> str:
    """Return "blank", "text" or "heading": in capitals; or several words, most of them capitalized
    and the others short, and neither a full stop nor a mark at the end."""
    if not line:
        return "blank"
    if line.isupper():
        return "heading"
    words = line.split()
    is_title = line[0].isupper() and line[-1].isalnum() and "." not in line and len(words) > 1
    small = [len(word) for word in words if not word[0].isupper()]
    is_capitalized = 2 * len(small) < len(words) and max(small, default=0) < 4
    return "heading" if is_title and is_capitalized else "text"


def _sentences(pipeline: Any, lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the sentences of a paragraph, which is split `PART_WORDS` words at a time. The last
    sentence of a part may continue in the next part, unless it is the only one."""
    words = chain.from_iterable(map(str.split, lines))
    rest = ""
    while part := list(islice(words, PART_WORDS)):
        *sentences, last = pipeline(" ".join([rest, *part]).strip()).sents
        yield from map(_words, sentences or [last])
        rest = last.text if sentences else ""
    if rest:
        yield _words(pipeline(rest))


def _spacy_pipeline(language: str) -> Any:
    spacy = optional("spacy", "spacy", "--tokenize")
    try:
        pipeline = spacy.blank(language)
    except Exception as error:  # the exception for a missing package differs between languages
        raise DataError(
            f"--tokenize={language}: spaCy has no tokenizer for it ({error})"
        ) from error
    pipeline.max_length = sys.maxsize  # the default protects parsers, which need more memory
    return pipeline


def _words(tokens: Iterable[Any]) -> list[str]:
    return [token.text for token in tokens if not token.is_space]
