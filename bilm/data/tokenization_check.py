"""Warns of text that is not tokenized: its words carry the punctuation that follows them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence

from absl import logging

from bilm.data.shards import Shards, count_tokens

# A full stop is left out: abbreviations keep theirs.
PUNCTUATION = ",;:!?…،؛؟。、，；：！？।"
CLOSING = "\"'”’»)]}"  # what may stand between a word and the end of its token
SAMPLE_WORDS = 100_000
MIN_WORDS, MIN_SHARE = 20, 0.02  # of words that carry punctuation, to speak of it
MAX_APART = 0.25  # marks on their own, to those that words carry
N_EXAMPLES = 3


class TokenizationCheck:
    """Counts, in the first words of a text, those that carry punctuation and marks on their own.

    Args:
        known: words that are right as they are, such as a model's vocabulary.
    """

    def __init__(self, known: Container[str] = ()):
        self._known = known
        self._n_words = self._n_apart = 0
        self._carriers: Counter[str] = Counter()

    @property
    def full(self) -> bool:
        """Whether enough was seen."""
        return self._n_words >= SAMPLE_WORDS

    def add(self, words: Sequence[str]) -> None:
        """Count the words of a sentence."""
        if self.full:
            return
        self._n_words += len(words)
        for word in words:
            core = word.rstrip(CLOSING)
            if core[-1:] not in PUNCTUATION or word.startswith("&"):  # &amp; is an entity of HTML
                continue
            if core[:-1].rstrip(CLOSING)[-1:].isalnum():
                self._carriers[word] += 1
            elif len(word) == 1 and core:
                self._n_apart += 1

    def warn(self, name: object) -> bool:
        """Log one warning if the text was not tokenized, and return whether it was not.

        Args:
            name: of the text.
        """
        carriers = {word: n for word, n in self._carriers.items() if word not in self._known}
        n_carriers = sum(carriers.values())
        if n_carriers < max(MIN_WORDS, MIN_SHARE * self._n_words):
            return False
        if self._n_apart > MAX_APART * n_carriers:
            return False
        examples = ", ".join(repr(w) for w, _ in Counter(carriers).most_common(N_EXAMPLES))
        logging.warning(
            "%s: not tokenized, it seems: %.2g %% of the words carry punctuation, such as %s; "
            "split the text as that of the model was split, with spaces around punctuation; "
            "bilm text --tokenize LANG does",
            name, 100 * n_carriers / self._n_words, examples,
        )  # fmt: skip
        return True


def check_tokenization(shards: Shards) -> bool:
    """Warn if the first lines of files are not tokenized; return whether they are not.

    Raises: DataError as `bilm.data.text.read_lines` does.
    """
    files = [path for path in shards if os.path.isfile(path)]  # a pipe is read once, by others
    if not files:
        return False
    check = TokenizationCheck()
    n_words = -(-SAMPLE_WORDS // len(files))
    count_tokens(shards.of(files), on_words=check.add, max_tokens=n_words)
    return check.warn(files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more")


def watched(
    sentences: Iterable[Sequence[str]], name: object, known: Iterable[str] = ()
) -> Iterator[Sequence[str]]:
    """Pass sentences on; warn once, after enough of them or the last, if they are not tokenized."""
    check, told = TokenizationCheck(frozenset(known)), False
    for words in sentences:
        check.add(words)
        if check.full and not told:
            told = True
            check.warn(name)
        yield words
    if not told:
        check.warn(name)
