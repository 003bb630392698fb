"""Sentences as lists of words: checks them, and splits text into sentences and words."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import chain, groupby, islice
from typing import Any

from bilm.errors import DataError
from bilm.support.imports import optional

SplitWords = Callable[[str], list[str]]
NO_COLUMNS = (str, bytes, Set, Mapping)  # iterables that are not lists of words or sentences
MAX_PARTS = 2  # of a word with blanks, such as "10 000"; more is a text
MAX_REPR = 60  # characters of a value in a message
PART_WORDS = 10_000  # words of a paragraph that are split into sentences at a time
RARE_LETTERS = "".join(map(chr, range(0x1E01, 0x1E95, 2)))  # such as ḁ, that spaCy keeps in words


def checked_sentence(sentence: Iterable[str], name: str) -> list[str]:
    """Return the words of a sentence as a list. Raises: DataError, with the name of the sentence,
    if it is not a list, see `is_column`, or contains other words than strings."""
    if not is_column(sentence):
        raise DataError(
            f"{name} is {described(sentence)}; expected a list of words: split a string into "
            "words, sort a set"
        )
    words = list(sentence)
    if not all(issubclass(kind, str) for kind in set(map(type, words))):
        i, word = next((i, word) for i, word in enumerate(words) if not isinstance(word, str))
        raise DataError(f"{name}, word {i} is {described(word)}; expected a string")
    return words


def checked_sentences(
    sentences: Iterable[str | Iterable[str]],
    split: Callable[[str], Iterable[str]] | None = None,
    kind: str = "sentence",
    name: str = "",
) -> Iterator[list[str]]:
    """Yield the words of each sentence; `split` splits strings, which are refused without it.
    Raises: DataError, with the kind of the items and the name of the batch, if it is not a list."""
    if not is_column(sentences):
        raise DataError(
            f"{name or 'the batch'} is {described(sentences)}, expected a list of {kind}s, a "
            "one-dimensional array or one column of a data frame"
        )
    of_batch = f" of {name}" if name else ""
    for i, sentence in enumerate(sentences):
        words = split(sentence) if split and isinstance(sentence, str) else sentence
        yield checked_sentence(words, f"{kind} {i}{of_batch}")


def is_column(value: object) -> bool:
    """Return whether a value is a list or a column: its items are neither letters of a string, nor
    columns of a data frame, nor without an order, as those of sets and mappings."""
    has_items = isinstance(value, Iterable) and not isinstance(value, NO_COLUMNS)
    return has_items and getattr(value, "ndim", 1) == 1 and not hasattr(value, "columns")


def described(value: object) -> str:
    """Return the type and shape of an array, or the start and type of another value."""
    kind = type(value).__name__
    shape = getattr(value, "shape", ())
    return f"a {kind} of shape {tuple(shape)}" if shape else f"{repr(value)[:MAX_REPR]} ({kind})"


def tokenizer(language: str | None = None) -> SplitWords:
    """Return a function that splits a text into words, at whitespace or by spaCy's rules for a
    language, such as `en`. Raises: BilmError without spaCy; DataError for other languages."""
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
    """Return a function that splits texts into sentences of words: at blank lines and headings, or
    with `paragraph_per_line` at each line's end, and at `.`, `!`, `?` and their like, unless spaCy
    treats them as part of a word (`Mr.`). Raises: as `tokenizer`."""
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
