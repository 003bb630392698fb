"""What a run reads before its first step: vocabulary, held-out text, the count of the corpus."""

from __future__ import annotations

import math
import numbers
import os
from pathlib import Path

from absl import logging

from bilm.data.bidirectional import Reader
from bilm.data.shards import Shards, count_tokens, resolve_shards
from bilm.data.survey import survey
from bilm.data.vocabulary import MARKS, Vocabulary, vocabulary_of
from bilm.errors import DataError, OptionsError, WeightsError
from bilm.evaluation import heldout_dataset
from bilm.options import MAX_SEED, RunOptions
from bilm.training.run_folder import RunFolder
from bilm.training.saved import Saved


def checked_seed(seed: int) -> int:
    """Return a seed as an integer. Raises: OptionsError if it is out of range."""
    if not (isinstance(seed, numbers.Integral) and 0 <= seed <= MAX_SEED):
        raise OptionsError(f"seed: found {seed!r}, expected an integer from 0 to {MAX_SEED}")
    return int(seed)


def load_vocabulary(vocab_file: str | Path, options: RunOptions) -> Vocabulary:
    """Load and check the vocabulary of a run. Raises: DataError, also if it holds no word."""
    vocab = vocabulary_of(vocab_file, options.model, n_tokens=None)
    if vocab.size <= len(MARKS):
        raise DataError(f"{vocab_file}: no word but the marks {' '.join(MARKS)}")
    return vocab


def heldout_readers(
    pattern: str | None,
    train: Shards,
    vocab: Vocabulary,
    options: RunOptions,
    max_sentences: int | None = None,
) -> tuple[Reader, Reader] | tuple[None, None]:
    """Return the readers of the held-out text and of a part of it; warn if it is trained on too.

    Args:
        pattern: glob of the text; without one there are no readers.
        train: the training text; the held-out text is decoded as it is.
        vocab, options: of the run.
        max_sentences: of the part, which takes every k-th sentence; None for all of them.
    Raises: DataError if the text holds no sentence, OptionsError for a number below 1.
    """
    if max_sentences is not None and max_sentences < 1:
        raise OptionsError(f"heldout_sentences is {max_sentences}, expected 1 or more")
    if not pattern:
        return None, None
    heldout = resolve_shards(pattern, train.on_bad_utf8)
    n_sentences = count_tokens(heldout).n_sentences
    if not n_sentences:
        raise DataError(f"{heldout.name}: no sentence; every line is blank")
    trained_on = set(map(os.path.realpath, train))
    both = [path for path in heldout if os.path.realpath(path) in trained_on]
    if both:
        logging.warning(
            "%s: is trained on too, so that the held-out perplexity is not that of new text",
            ", ".join(both),
        )
    whole = heldout_dataset(heldout, vocab, options.bidirectional)
    if max_sentences is None or max_sentences >= n_sentences:
        return whole, whole
    part = heldout.thinned(math.ceil(n_sentences / max_sentences))
    return whole, heldout_dataset(part, vocab, options.bidirectional)


def completed(
    options: RunOptions, vocab: Vocabulary, shards: Shards, folder: RunFolder
) -> RunOptions:
    """Return the options with what the corpus and the vocabulary say.

    A run that is continued knows the count of its corpus.

    Raises: DataError if the corpus holds no sentence.
    """
    stored = folder.stored_options().get("n_train_tokens")
    if options.n_train_tokens is None:
        options = options.replace(n_train_tokens=stored)
    if options.n_train_tokens is None:
        counts = survey(shards, vocab, options.sample_softmax)
        if not counts.n_predictions:
            raise DataError(f"{shards.name}: no sentence; every line is blank")
        options = options.replace(n_train_tokens=counts.n_predictions)
    elif stored is None:  # a run that is continued was looked at before
        survey(shards, vocab, options.sample_softmax, sample=True)
    sampled = options.sample_softmax
    if sampled and options.n_negative_samples_batch >= vocab.size:
        logging.warning(
            "%d negatives are not below the vocabulary's %d words: the full softmax is used",
            options.n_negative_samples_batch, vocab.size,
        )  # fmt: skip
        sampled = False
    return options.replace(n_tokens_vocab=vocab.size, sample_softmax=sampled)


def share_rows(options: RunOptions, saved: Saved | None, n_replicas: int) -> RunOptions:
    """Return the options with the rows of the run that is continued shared by all replicas.

    Raises: WeightsError if they cannot be shared, or if another number was requested.
    """
    if saved is None or options.batch_size * n_replicas == saved.n_rows:
        return options
    if options.batch_size != saved.batch_size:
        requested = options.batch_size * n_replicas
        raise WeightsError(
            f"{saved.path}: saved with {saved.n_rows} rows, but this run has {requested}, which is "
            "batch_size times replicas"
        )
    batch_size, left = divmod(saved.n_rows, n_replicas)
    if left:
        raise WeightsError(
            f"{saved.path}: its {saved.n_rows} rows cannot be shared by {n_replicas} replicas; "
            "expected a number of replicas that divides them"
        )
    logging.info(
        "the run's %d rows are shared anew: %d replicas x %d rows",
        saved.n_rows, n_replicas, batch_size,
    )  # fmt: skip
    return options.replace(batch_size=batch_size)
