"""What a run reads: its vocabulary, its training text and its held-out text."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from absl import logging

from bilm.data.dataset import Reader
from bilm.data.shards import Shards, count_tokens
from bilm.data.stream import describe_shards
from bilm.data.vocabulary import MARKS, Vocabulary, vocabulary_of
from bilm.errors import DataError
from bilm.options.run_options import RunOptions
from bilm.scoring.perplexity import heldout_dataset
from bilm.training.plan import integer
from bilm.training.run_folder import RunFolder


class Heldout(NamedTuple):
    """Readers of the held-out text, and of the part that is measured before the run's end."""

    whole: Reader
    part: Reader


def load_vocabulary(vocab_file: str | Path, options: RunOptions) -> Vocabulary:
    """Load and check the vocabulary of a run. Raises: DataError, also if it contains no word."""
    vocab = vocabulary_of(vocab_file, options.model, n_tokens=None)
    if vocab.size <= len(MARKS):
        raise DataError(f"{vocab_file}: contains no word, only the marks {' '.join(MARKS)}")
    return vocab


def read_heldout(
    shards: Shards, vocab: Vocabulary, options: RunOptions, max_sentences: int | None = None
) -> Heldout:
    """Return the readers of the held-out text.

    Args:
        vocab, options: of the run.
        max_sentences: of the part, which contains every k-th sentence; None for all of them.
    Raises: DataError if the text contains no sentence, OptionsError for a number below 1.
    """
    if max_sentences is not None:
        integer("heldout_sentences", max_sentences, 1)
    n_sentences = count_tokens(shards).n_sentences
    if not n_sentences:
        raise DataError(f"{shards.name}: no sentence; every line is blank")
    whole = heldout_dataset(shards, vocab, options.bidirectional)
    if max_sentences is None or max_sentences >= n_sentences:
        return Heldout(whole, whole)
    part = shards.thinned(math.ceil(n_sentences / max_sentences))
    return Heldout(whole, heldout_dataset(part, vocab, options.bidirectional))


def check_training_text(
    shards: Shards, heldout: Shards | None, vocab_file: str | Path, folder: RunFolder
) -> None:
    """Refuse a training text that includes the vocabulary or files of the run.

    A run that is continued has read them before: then, and for held-out text, warn.

    Raises: DataError, naming the file.
    """
    real = {os.path.realpath(path): path for path in shards}
    for name, path in real.items():
        is_vocabulary = name == os.path.realpath(vocab_file)
        if not (is_vocabulary or folder.owns(name)):
            continue
        what = "the vocabulary" if is_vocabulary else "a file of the run"
        problem = f"{path}: matches the pattern of the training text, but is {what}"
        if not folder.holds_run:
            raise DataError(f"{problem}; use a pattern that matches only text")
        logging.warning("%s", problem)
    both = [path for path in heldout or () if os.path.realpath(path) in real]
    if both:
        logging.warning(
            "%s: also occurs in the training text, so held-out perplexity will be too low",
            ", ".join(both),
        )


def check_unchanged(shards: Shards, described: Sequence[str], step: int) -> None:
    """Compare the sizes of the text's files with those at the start of training.

    Raises: DataError, naming the first file that differs.
    """
    try:
        found = describe_shards(shards)
    except OSError:  # a file is missing for now; if it is needed, reading it raises an error
        return
    for path, here, before in zip(shards, found, described, strict=True):
        if here != before:
            raise DataError(
                f"{path}: has changed during training: found {here}, but {before} when it began; "
                f"nothing was saved after step {step}. Restore the file and continue from the "
                "last checkpoint"
            )
