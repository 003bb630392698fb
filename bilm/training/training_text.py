"""The text of a run as a pipeline of batches, and where each of them came from."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from bilm.data.dataset import BidirectionalLMDataset, LMDataset
from bilm.data.shards import Shards
from bilm.data.stream import Trace, describe_lines
from bilm.data.vocabulary import Vocabulary
from bilm.errors import BilmError, NotFiniteError
from bilm.options.run_options import RunOptions
from bilm.storage.checkpoint import Checkpoint
from bilm.training.devices import Devices
from bilm.training.pipeline import PREFETCH, as_dataset, batch_signature, replica_batches
from bilm.training.sampling import LogUniformSampler

MOST_LEFT = 4 * PREFETCH  # batches, and errors, that a pipeline gives after its text was closed
ENDS = tf.errors.OutOfRangeError, tf.errors.FailedPreconditionError  # the latter of endless ones


class TrainingText:
    """The text of a run, read ahead of the steps.

    `traces` contains one trace for each window that was read and not yet trained on; the training
    loop removes one from its left end for each step. Close it when no more steps follow.

    Args:
        options: of a replica.
        vocab: the vocabulary.
        shards: the files of the text.
        seed: keys the order of the text and the negatives.
    """

    def __init__(self, options: RunOptions, vocab: Vocabulary, shards: Shards, seed: int):
        self.options, self.vocab, self.seed = options, vocab, seed
        reader = BidirectionalLMDataset if options.bidirectional else LMDataset
        self.reader = reader(shards, vocab, shuffle_on_load=True, seed=seed)
        self.shards = shards
        self.traces: deque[Trace] = deque()
        self.failures: list[BilmError] = []
        self._reading, self._closed = threading.Lock(), False
        self._iterator: Any = iter(())

    def batches(self, devices: Devices, saved: Checkpoint | None) -> Any:
        """Return the iterator over the batches of the run from a checkpoint on."""
        options, own = self.options, devices.own
        step, position = (saved.step or 0, saved.position) if saved else (0, None)
        sampler = None
        if options.sample_softmax:
            sampler = LogUniformSampler(
                self.vocab.size, options.n_negative_samples_batch, self.seed
            )

        def windows() -> Iterator[dict]:
            n_rows = options.batch_size
            rows = range(n_rows * own.start, n_rows * own.stop)
            # An early checkpoint has no position: its windows are read again and skipped.
            skipped = 0 if position else step
            total = n_rows * devices.n_replicas
            for window, trace in self.reader.iter_placed_batches(
                total, options.unroll_steps, position, skipped, rows
            ):
                self.traces.append(trace)
                yield window

        signature = batch_signature(
            options.model,
            options.batch_size,
            options.unroll_steps,
            sampler.n_samples if sampler else 0,
        )

        def batches() -> Iterator[dict]:
            shared = options.share_negatives
            made = replica_batches(windows(), options.model, own, sampler, step, shared)
            while True:
                with self._reading:
                    batch = None if self._closed else next(made, None)
                if batch is None:
                    return
                yield batch

        endless = devices.several_hosts
        pipeline = as_dataset(batches, signature, devices.strategy, self.failures, endless)
        self._iterator = iter(pipeline)
        return self._iterator

    def close(self) -> None:
        """Stop reading ahead, and consume the pipeline to its end.

        A TensorFlow thread that enters Python while the interpreter ends waits forever, and the
        process waits for the thread. An error whose traceback references the pipeline is enough
        to cause this. The thread has left Python only when the pipeline has reached its end.
        """
        with self._reading:
            self._closed = True
        for _ in range(MOST_LEFT):
            try:
                next(self._iterator)
            except (StopIteration, *ENDS):
                return
            except tf.errors.OpError:  # a batch that no step needs any more; the end comes after it
                pass

    @contextmanager
    def explaining(self, step: int) -> Iterator[None]:
        """Name the text in errors: a bad line, or the window of a loss that is not finite."""
        try:
            yield
        except NotFiniteError as error:
            places = describe_lines(self.shards, self.traces[0].sources)
            raise NotFiniteError(
                f"step {step + 1}: {error}; nothing was updated, and the last checkpoint remains; "
                f"the window contains {'; '.join(places)}"
            ) from None
        except tf.errors.OpError:
            if self.failures:
                raise self.failures[0] from None
            raise
