"""The files of a text: finds them, reads and counts their sentences, holds out a part of them."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from absl import logging

from bilm.data.profile import SAMPLE_WORDS, Profile
from bilm.data.readers import TEXT, form_of
from bilm.data.text import input_files, matching_files, placed_lines, writing_text
from bilm.errors import DataError
from bilm.support.progress import Progress
from bilm.support.urls import PathLike, is_url

MAX_EXAMINED = 8  # files whose first lines are examined
MIN_WORDS = 3  # of a sentence that is compared: any two texts share shorter ones

# The held-out part of a text.
BLOCK = 20  # consecutive sentences, at most: the model reads each after those before it
PERIOD = 20  # one of these blocks is held out; of a long text, fewer are
MAX_WORDS = 20_000  # of the held-out part, about
MAX_LOST = 1.1  # words that training leaves out for each word of an average block


@dataclass
class Shards:
    """The files or URLs of a text, in order, plain or compressed, one sentence per line."""

    paths: Sequence[str]
    on_bad_utf8: str = "error"  # or "replace": see `read_lines`
    name: str = ""  # for messages; by default the name of the first file
    left_out: Collection[int] = ()  # digests of sentences that readers skip: `sentence_digest`

    def __post_init__(self) -> None:
        self.paths = list(map(os.fspath, self.paths))
        self.name = self.name or next(iter(self.paths), "no file")

    def examine(self, vocabulary: Container[str] = (), of_model: Profile | None = None) -> None:
        """Warn if the first words are not tokenized or unlike the text of a model.
        Pipes, which can be read only once, are not examined. Raises: DataError."""
        for warning in self.profile(vocabulary).warnings(of_model).values():
            logging.warning("%s: %s", self.name, warning)

    def profile(self, vocabulary: Container[str] = ()) -> Profile:
        """Return the profile of the first words. Raises: DataError."""
        sentences = [line.split() for line in self.first_lines]
        return Profile.of(sentences, self.first_lines, vocabulary=vocabulary)

    @cached_property
    def first_lines(self) -> list[str]:
        """The lines, except blank ones, of the first `SAMPLE_WORDS` words, as many of each file."""
        files = [path for path in self.paths if is_url(path) or os.path.isfile(path)]
        files = files[:MAX_EXAMINED]
        lines: list[str] = []
        for path in files:
            n_left = SAMPLE_WORDS / len(files)
            for *_, line in placed_lines(path, self.on_bad_utf8):
                n_left -= len(line.split())
                lines.append(line)
                if n_left <= 0:
                    break
        return [line for line in lines if line.strip()]

    def sentences(self) -> Iterator[list[str]]:
        """Yield the words of each line that is not blank or left out. Raises: DataError."""
        return chain.from_iterable(map(self.sentences_of, self.paths))

    def sentences_of(self, path: str) -> Iterator[list[str]]:
        """Yield the same of one of the files."""
        for *_, text in placed_lines(path, self.on_bad_utf8):
            words = text.split()
            if words and not self.leaves_out(words):
                yield words

    def leaves_out(self, words: Sequence[str]) -> bool:
        """Return whether readers skip this sentence."""
        return bool(self.left_out) and sentence_digest(words) in self.left_out

    def digests(self) -> set[int]:
        """Return the digests of the sentences, except short ones: see `sentence_digest`."""
        return set(map(sentence_digest, self.sentences())) - {0}

    def leaving_out(self, digests: Collection[int]) -> Shards:
        """Return the text without the sentences that have these digests, and with all others."""
        return replace(self, left_out=digests)


TextFiles = PathLike | Shards  # a file, glob or URL of text, or its files


def sentence_digest(words: Sequence[str]) -> int:
    """Return a digest of a sentence, 64 bits; 0 for one of fewer than `MIN_WORDS` words."""
    text = " ".join(words).encode(errors="surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "big") if len(words) >= MIN_WORDS else 0


def resolve_shards(
    filepattern: TextFiles, on_bad_utf8: str = "error", reads_once: bool = False
) -> Shards:
    """Return the files or URLs that a glob matches, sorted by name, and `Shards` unchanged. Raises:
    DataError if there are none, if the ending of one belongs to a form other than text, or if one
    is a pipe, unless the text is read only once."""
    if isinstance(filepattern, Shards):
        return filepattern
    paths = matching_files(filepattern) if reads_once else input_files(filepattern)
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


def draw_heldout_part(shards: Shards, output: Path) -> None:
    """Write about a twentieth of a text, or about `MAX_WORDS` words, to a file, unless it has no
    sentences that can be held out.

    Training leaves out all copies of a held-out sentence. So of the sentences drawn, those with few
    copies are held out, without those too short for `sentence_digest`. Raises: DataError.
    """
    counts = count_tokens(shards)
    n_sentences = counts.n_sentences
    if n_sentences < PERIOD:
        raise DataError(
            f"{shards.name}: {n_sentences} sentences (lines) are too few to hold out a part; "
            f"expected {PERIOD} or more, or other text for --heldout"
        )
    length = min(BLOCK, n_sentences // PERIOD)
    n_blocks = n_sentences // length
    period = min(n_blocks, max(PERIOD, counts.n_tokens // MAX_WORDS))
    limit = MAX_LOST * counts.n_tokens / period
    best: list[list[str]] = []
    n_lost = 0
    for place in (period - 1, period // 2, 0):
        part, n_lost_by_part = _part_with_few_copies(shards, length, period, place, limit)
        if sum(map(len, part)) > sum(map(len, best)):
            best = part
            n_lost = n_lost_by_part
        if sum(map(len, best)) * period * 2 > counts.n_tokens:  # half of what is drawn
            break
    if not best:
        logging.warning(
            "%s: too few different sentences of %d words or more to hold out a part, so nothing is "
            "measured; pass other text with --heldout", shards.name, MIN_WORDS,
        )  # fmt: skip
        return
    with writing_text(output) as file:
        file.writelines(" ".join(words) + "\n" for words in best)
    logging.info(
        "held out %d words: %s; training reads %d of %d words, without copies of these sentences",
        sum(map(len, best)), output, counts.n_tokens - n_lost, counts.n_tokens,
    )  # fmt: skip


def _part_with_few_copies(
    shards: Shards, length: int, period: int, place: int, limit: float
) -> tuple[list[list[str]], int]:
    """Draw the block at a place of each period, of so many sentences. Return those of its sentences
    that have the fewest copies elsewhere, and the number of words of all copies, up to `limit`."""
    drawn: list[tuple[int, list[str]]] = []
    n_drawn: Counter[int] = Counter()  # words of each sentence that is drawn
    for number, words in enumerate(shards.sentences()):
        if number // length % period == place and len(words) >= MIN_WORDS:
            digest = sentence_digest(words)
            drawn.append((digest, words))
            n_drawn[digest] += len(words)
    n_copied: Counter[int] = Counter()  # words of all copies
    for words in shards.sentences():
        digest = sentence_digest(words)
        if digest in n_drawn:
            n_copied[digest] += len(words)

    heldout: set[int] = set()
    n_lost = 0
    for digest in sorted(n_drawn, key=lambda digest: n_copied[digest] / n_drawn[digest]):
        if n_lost + n_copied[digest] > limit:
            break
        heldout.add(digest)
        n_lost += n_copied[digest]
    return [words for digest, words in drawn if digest in heldout], n_lost
