"""Sentences as lists of words: checks them, splits text into words, and detects untokenized text.

Text for a biLM is tokenized: punctuation is separated from words by spaces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from itertools import groupby
from typing import Any, TypeVar

from absl import logging

from bilm.errors import DataError
from bilm.support.imports import optional

# The full stop is left out because abbreviations end with one.
PUNCTUATION = ",;:!?…،؛؟。、，；：！？।"
CLOSING = "\"'”’»)]}"  # may follow a word or its punctuation
SAMPLE_WORDS = 100_000
MAX_PARTS = 2  # of a word with blanks, such as "10 000"; more is a text
# Limits for a warning: the minimum number and share of words that end with punctuation, and the
# maximum number of separate punctuation marks per such word.
MIN_WORDS, MIN_SHARE = 20, 0.02
MAX_SEPARATE = 0.25
N_EXAMPLES = 3
Words = TypeVar("Words", bound=Sequence[str])


def checked_sentence(sentence: Iterable[str], name: str) -> list[str]:
    """Return the words of a sentence as a list; an iterator is consumed.

    Args:
        sentence: words in order. Strings are refused because they would count as lists of
            one-letter words, sets and mappings because they have no order of words.
        name: name of the sentence for the error.
    Raises: DataError if `sentence` is not an ordered collection of strings.
    """
    if not isinstance(sentence, Iterable) or isinstance(sentence, str | bytes | Set | Mapping):
        found = f"{name} is {repr(sentence)[:60]} ({type(sentence).__name__})"
        raise DataError(f"{found}; expected a list of words: split a string into words, sort a set")
    words = list(sentence)
    for i, word in enumerate(words):
        if not isinstance(word, str):
            found = f"{name}, word {i} is {repr(word)[:60]} ({type(word).__name__})"
            raise DataError(f"{found}; expected a string")
    return words


def check_batch(sentences: object) -> None:
    """Raise DataError for a string, and for a set or mapping, which has no order of sentences."""
    if isinstance(sentences, str | bytes | Set | Mapping):
        raise DataError(f"the batch is {repr(sentences)[:60]}; expected a list of sentences")


def checked_sentences(sentences: Iterable[Iterable[str]]) -> list[list[str]]:
    """Return the words of each sentence. Raises: DataError if the batch is not a list of them."""
    check_batch(sentences)
    return [checked_sentence(words, f"sentence {i}") for i, words in enumerate(sentences)]


# --- splitting text ---


def tokenizer(language: str | None = None) -> Callable[[str], list[str]]:
    """Return a function that splits a text into words.

    Args:
        language: language code of a blank spaCy pipeline, such as `en`; None splits at whitespace.
    Raises: BilmError if spaCy is not installed; DataError if spaCy does not support the language.
    """
    if language is None:
        return str.split
    make_doc = _spacy_pipeline(language).make_doc
    return lambda text: _words(make_doc(text))


def sentence_splitter(language: str) -> Callable[[str], list[list[str]]]:
    """Return a function that splits a text into sentences, and each sentence into words.

    Line breaks do not end a sentence; blank lines do, and `.`, `!`, `?` and their counterparts in
    other scripts, unless spaCy treats them as part of a word (`Mr.`).

    Args:
        language: language code of a blank spaCy pipeline, such as `en`.
    Raises: as `tokenizer`.
    """
    pipeline = _spacy_pipeline(language)
    pipeline.add_pipe("sentencizer")

    def split(text: str) -> list[list[str]]:
        texts = (" ".join(paragraph.split()) for paragraph in paragraphs(text.splitlines()))
        documents = map(pipeline, texts)
        found = (_words(sentence) for document in documents for sentence in document.sents)
        return [words for words in found if words]

    return split


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Join the lines of each paragraph with spaces; blank lines separate paragraphs."""
    for has_words, group in groupby(map(str.strip, lines), bool):
        if has_words:
            yield " ".join(group)


def _spacy_pipeline(language: str) -> Any:
    spacy = optional("spacy", "spacy", "--tokenize")
    try:
        return spacy.blank(language)
    except Exception as error:  # the exception for a missing package differs between languages
        raise DataError(
            f"--tokenize={language}: spaCy has no tokenizer for it ({error})"
        ) from error


def _words(tokens: Iterable[Any]) -> list[str]:
    return [token.text for token in tokens if not token.is_space]


# --- detecting untokenized text ---


class TokenizationCheck:
    """Logs one warning if many of the first words of a text end with punctuation, as in untokenized
    text.

    Args:
        name: name of the text for the warning.
        known: words that may end with punctuation, such as a model's vocabulary.
    Attributes: `done`, whether further sentences are ignored; `warned`, whether the warning was
        logged.
    """

    def __init__(self, name: object, known: Container[str] = ()):
        self.done = self.warned = False
        self._name, self._known = name, known
        self._n_words = self._n_separate = self._n_attached = 0
        self._attached: Counter[str] = Counter()

    def watch(self, sentences: Iterable[Words]) -> Iterator[Words]:
        """Yield the sentences unchanged; warn after `SAMPLE_WORDS` words or the last sentence."""
        for words in sentences:
            self.add(words)
            yield words
        self.warn()

    def add(self, words: Sequence[str]) -> None:
        """Count the words of a sentence. After `SAMPLE_WORDS` words, warn if necessary and ignore
        the rest."""
        if self.done:
            return
        if self._n_words >= SAMPLE_WORDS:
            self.warn()
            self.done = True
            return
        self._n_words += len(words)
        for word in words:
            core = word.rstrip(CLOSING)
            if core[-1:] not in PUNCTUATION or word.startswith("&"):  # &amp; is an HTML entity
                continue
            if core[:-1].rstrip(CLOSING)[-1:].isalnum():
                self._attached[word] += 1
                self._n_attached += 1
            elif len(word) == 1 and core:
                self._n_separate += 1

    def warn(self) -> bool:
        """Warn, once, if the words counted so far are not tokenized; return `warned`."""
        least = max(MIN_WORDS, MIN_SHARE * self._n_words)
        if self.done or self._n_attached < least:
            return self.warned
        # A copy, because other threads may add words.
        counts = dict(self._attached)
        attached = {word: n for word, n in counts.items() if word not in self._known}
        n_attached = sum(attached.values())
        if n_attached < least or self._n_separate > MAX_SEPARATE * n_attached:
            return self.warned
        self.done = self.warned = True
        examples = ", ".join(repr(word) for word, _ in Counter(attached).most_common(N_EXAMPLES))
        logging.warning(
            "%s: probably not tokenized: %.2g %% of the words end with punctuation, such as %s; "
            "separate punctuation with spaces, as in the text that the model was trained on; "
            "bilm text --tokenize LANG does this",
            self._name, 100 * n_attached / self._n_words, examples,
        )  # fmt: skip
        return self.warned
