"""A run of training as the benchmarks time it: text, pipeline and trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import common

from bilm.data.bidirectional import BidirectionalLMDataset
from bilm.data.vocabulary import UnicodeCharsVocabulary
from bilm.options import RunOptions
from bilm.training.devices import make_strategy
from bilm.training.pipeline import as_dataset, batch_signature, replica_batches
from bilm.training.sampling import LogUniformSampler
from bilm.training.step import Trainer


class TrainingRun(NamedTuple):
    """A trainer, the pipeline that it reads, and what makes the same batches by themselves."""

    trainer: Trainer
    iterator: Iterator
    batches: Callable[[], Iterator[dict]]


def training_run(options: RunOptions, folder: Path, n_tokens: int, precision: str) -> TrainingRun:
    """Set up training on shuffled classics_en, or on the text that stands in for it.

    Args:
        options: of the run.
        folder: takes the files that are made.
        n_tokens: vocabulary size.
        precision: of the operands of products.
    """
    text = common.corpus(folder, n_tokens)
    max_length = options.char_cnn.max_characters_per_token
    vocab = UnicodeCharsVocabulary(text.vocab_file, max_length, validate_file=True)
    strategy = make_strategy()
    trainer = Trainer(options, vocab.size, strategy, precision=precision)
    n_negatives = options.n_negative_samples_batch
    sampler = LogUniformSampler(vocab.size, n_negatives, seed=0)

    def batches():
        dataset = BidirectionalLMDataset(text.train, vocab, shuffle_on_load=True)
        windows = dataset.iter_batches(options.batch_size, options.unroll_steps)
        return replica_batches(windows, options.model, 1, sampler)

    signature = batch_signature(
        options.model, options.batch_size, options.unroll_steps, n_negatives
    )
    return TrainingRun(trainer, iter(as_dataset(batches, signature, strategy)), batches)
