"""A training run that the benchmarks time: text, pipeline and trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import common

from bilm.data.bidirectional import BidirectionalLMDataset
from bilm.data.vocabulary import UnicodeCharsVocabulary
from bilm.options import RunOptions
from bilm.training.devices import Devices
from bilm.training.pipeline import as_dataset, batch_signature, replica_batches
from bilm.training.sampling import LogUniformSampler
from bilm.training.step import Trainer


class TimedRun(NamedTuple):
    """A trainer, its input pipeline, and a function that returns the same batches without it."""

    trainer: Trainer
    iterator: Iterator
    batches: Callable[[], Iterator[dict]]


def training_run(options: RunOptions, folder: Path, n_tokens: int, precision: str) -> TimedRun:
    """Set up training on shuffled classics_en, or on the text that replaces it.

    Args:
        options: those of the run.
        folder: folder for the files that are written.
        n_tokens: vocabulary size.
        precision: that of the operands of products.
    """
    text = common.corpus(folder, n_tokens)
    max_length = options.char_cnn.max_characters_per_token
    vocab = UnicodeCharsVocabulary(text.vocab_file, max_length, validate_file=True)
    devices = Devices()
    steady = options.replace(decay="none")  # a decay needs the length of the run
    trainer = Trainer(steady, vocab.size, devices, precision=precision)
    n_negatives = options.n_negative_samples_batch
    sampler = LogUniformSampler(vocab.size, n_negatives, seed=0)

    def batches():
        dataset = BidirectionalLMDataset(text.train, vocab, shuffle_on_load=True)
        windows = dataset.iter_batches(options.batch_size, options.unroll_steps)
        return replica_batches(windows, options.model, 1, sampler)

    signature = batch_signature(
        options.model, options.batch_size, options.unroll_steps, n_negatives
    )
    return TimedRun(trainer, iter(as_dataset(batches, signature, devices.strategy)), batches)
