"""A held-out part of a text, drawn in blocks of consecutive sentences."""

from __future__ import annotations

from itertools import count, islice
from pathlib import Path

from absl import logging

from bilm.data.shards import Shards, count_tokens, sentence_digest
from bilm.errors import DataError
from bilm.support.files import replacing

BLOCK = 20  # consecutive sentences, at most: the model reads each after those before it
PERIOD = 20  # one of these blocks is held out; of a long text, fewer are
MAX_WORDS = 20_000  # of the held-out part, about


def draw_heldout_part(shards: Shards, output: Path) -> None:
    """Write a twentieth of a text, or about `MAX_WORDS` words, to a file.

    Raises: DataError if the text has too few sentences.
    """
    counts = count_tokens(shards)
    n_sentences = counts.n_sentences
    if n_sentences < PERIOD:
        raise DataError(
            f"{shards.name}: {n_sentences} sentences are too few to hold out a part; expected "
            f"{PERIOD} or more, or other text for --heldout"
        )
    length = min(BLOCK, n_sentences // PERIOD)
    period = max(PERIOD, counts.n_tokens // MAX_WORDS)

    sentences = shards.sentences()
    n_words = 0
    with replacing(output) as path, open(path, "w", encoding="utf-8", newline="\n") as file:
        for number in count(1):
            block = list(islice(sentences, length))
            if not block:
                break
            if number % period == 0:
                file.writelines(" ".join(words) + "\n" for words in block)
                n_words += sum(map(len, block))
    logging.info("held out %d of %d words: %s", n_words, counts.n_tokens, output)


def without_heldout_part(shards: Shards, heldout: Shards) -> Shards:
    """Return a text without the sentences of its held-out part, wherever they occur in it."""
    return shards.without(set(map(sentence_digest, heldout.sentences())) - {0})
