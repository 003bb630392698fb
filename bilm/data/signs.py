"""Warns of the signs, in the first words of a text, that it is not one tokenized sentence per line
or differs from the text of a model."""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import TypeVar

from absl import logging

from bilm.data.profile import Profile

Item = TypeVar("Item")
SAMPLE_WORDS = 100_000
GROWTH = 1.5  # of the number of words, after which warnings are looked for again


class TextSigns:
    """Keeps the first words of the text `name` and logs a warning for each sign in them.

    Attributes: `known`, words that are not signs, such as a model's vocabulary; `vocabulary`, by
        default the same, with which words are compared; `of_model`, the profile of a model's text;
        `done`, whether further sentences are ignored; `reported`, signs that need no report.
    """

    def __init__(
        self,
        name: object,
        known: Container[str] = (),
        vocabulary: Container[str] = (),
        of_model: Profile | None = None,
    ):
        self._name = name
        self.known = known
        self.vocabulary = vocabulary
        self.of_model = of_model
        self.done = False
        self.reported: set[str] = set()
        self._lines: list[str] = []
        self._sentences: list[Sequence[str]] = []
        self._n_words = 0
        self._n_examined = 0

    def watch(self, items: Iterable[Item], words_of: Callable[..., list[str]]) -> Iterator[Item]:
        """Yield the items unchanged; warn after `SAMPLE_WORDS` words or the last item."""
        for item in items:
            self.add(words_of(item))
            yield item
        self.warn()

    def add_line(self, line: str) -> str:
        """Keep a line as it is before it is split into words, and return it."""
        if not self.done and line.strip():
            self._lines.append(line)
        return line

    def add(self, words: Sequence[str]) -> None:
        """Keep a sentence. After `SAMPLE_WORDS` words, warn and ignore the rest."""
        if self.done or not words:
            return
        self._sentences.append(words)
        self._n_words += len(words)
        if self._n_words >= SAMPLE_WORDS:
            self.warn()
            self.done = True

    def profile(self) -> Profile:
        """Return the profile of the first words, which other threads may add to."""
        vocabulary = self.vocabulary or self.known
        return Profile.of(self._sentences[:], self._lines[:], self.known, vocabulary)

    def warn(self) -> None:
        """Warn of each new sign, unless there were nearly as many words at the last call."""
        if self.done or self._n_words < GROWTH * self._n_examined:
            return
        self._n_examined = self._n_words
        for name, warning in self.profile().warnings(self.of_model).items():
            if name not in self.reported:
                self.reported.add(name)
                logging.warning("%s: %s", self._name, warning)
