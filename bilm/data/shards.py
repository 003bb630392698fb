"""Finds the files of a text, reads their sentences from any position and counts them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from bilm.data.readers import TEXT, form_of
from bilm.data.signs import SAMPLE_WORDS, TextSigns
from bilm.data.text import ON_BAD_UTF8, matching_files, placed_lines
from bilm.errors import DataError
from bilm.support.progress import Progress
from bilm.support.urls import is_url

MAX_EXAMINED = 8  # files whose first lines are examined
MIN_WORDS = 3  # of a sentence that is compared: any two texts share shorter ones


class Shards:
    """The files or URLs of a text, in order, plain or compressed, one sentence per line.

    Args:
        on_bad_utf8: "error", or "replace" to decode invalid UTF-8 as U+FFFD.
        name: name of the text, for messages; None for the name of the first file.
        left_out: digests of sentences that readers skip, see `sentence_digest`.
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike],
        on_bad_utf8: str = "error",
        name: str | None = None,
        left_out: Collection[int] = (),
    ):
        self.left_out = left_out
        self.paths = tuple(os.fspath(path) for path in paths)
        self.on_bad_utf8 = on_bad_utf8
        self.errors = ON_BAD_UTF8[on_bad_utf8]
        self.name = name or next(iter(self.paths), "no file")

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> str:
        return self.paths[index]

    def examine(self, vocabulary: Container[str] = ()) -> None:
        """Warn of signs in the first lines that the text is not tokenized, or not in the normal
        form of a vocabulary. Raises: DataError."""
        name = self.paths[0] if len(self) == 1 else f"{self.paths[0]} and {len(self) - 1} more"
        signs = TextSigns(name, vocabulary=vocabulary)
        # Pipes can be read only once.
        files = [path for path in self if is_url(path) or os.path.isfile(path)][:MAX_EXAMINED]
        for path in files:
            n_left = SAMPLE_WORDS / len(files)
            for *_, line in placed_lines(path, self.errors):
                words = signs.add_line(line).split()
                signs.add(words)
                n_left -= len(words)
                if n_left <= 0:
                    break
        signs.warn()

    def sentences(self) -> Iterator[list[str]]:
        """Yield the words of each line that is not blank or left out. Raises: DataError."""
        for path in self:
            for *_, text in placed_lines(path, self.errors):
                words = text.split()
                if words and not self.leaves_out(words):
                    yield words

    def leaves_out(self, words: Sequence[str]) -> bool:
        """Return whether readers skip this sentence."""
        return bool(self.left_out) and sentence_digest(words) in self.left_out

    def without(self, digests: Collection[int]) -> Shards:
        """Return the text without the sentences that have these digests."""
        return Shards(self.paths, self.on_bad_utf8, self.name, digests)


def sentence_digest(words: Sequence[str]) -> int:
    """Return a digest of a sentence, 64 bits; 0 for one of fewer than `MIN_WORDS` words."""
    text = " ".join(words).encode(errors="surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "big") if len(words) >= MIN_WORDS else 0


def resolve_shards(filepattern: str | os.PathLike | Shards, on_bad_utf8: str = "error") -> Shards:
    """Return the files or URLs that a glob matches, sorted by name, and `Shards` unchanged. Raises:
    DataError if there are none, or if the ending of one belongs to a form other than text."""
    if isinstance(filepattern, Shards):
        return filepattern
    paths = matching_files(filepattern)
    for path in paths:
        form = form_of(path)
        if form is not TEXT:
            raise DataError(
                f"{path}: the ending of the name belongs to {form.name}, but text with one "
                "sentence per line is expected; convert the file with bilm text, or rename it if "
                "it is text"
            )
    return Shards(paths, on_bad_utf8, os.fspath(filepattern))


class TextCounts(NamedTuple):
    """The numbers of the sentences of a text, its lines that are not blank, and of their words."""

    n_sentences: int
    n_tokens: int

    @property
    def n_predictions(self) -> int:
        """The number of predictions of one direction: one per token and one per sentence end."""
        return self.n_tokens + self.n_sentences


def count_tokens(shards: Shards) -> TextCounts:
    """Count the sentences and tokens of all files. Raises: DataError as `read_lines` does."""
    n_sentences = n_tokens = 0
    counted = Progress("counting", "sentences")
    for words in counted.over(shards.sentences()):
        n_sentences += 1
        n_tokens += len(words)
    return TextCounts(n_sentences, n_tokens)
