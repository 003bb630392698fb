"""The text of a run as batches of training steps, made on the host while earlier steps run."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.data.dataset import BidirectionalLMDataset, LMDataset
from bilm.data.shards import Shards
from bilm.data.stream import Position
from bilm.data.vocabulary import Vocabulary
from bilm.data.windows import distinct_shapes, model_batch
from bilm.errors import BilmError
from bilm.layers.sampled_softmax import Negatives
from bilm.options.run_options import RunOptions
from bilm.training.devices import Devices
from bilm.training.sampling import draw_negatives, with_unknown

PREFETCH = 8
# maximum number of batches and errors that a pipeline yields after its text is closed
MOST_LEFT = 4 * PREFETCH
# The second is raised at the first end of a pipeline that is declared endless.
ENDS = tf.errors.OutOfRangeError, tf.errors.FailedPreconditionError


class TrainingText:
    """The text of a run, read ahead of the steps; call `close` when no more follow.

    `positions` contains one position for each window that was read and not yet trained on; the
    training loop removes one from its left end for each step. Options are of one replica.
    """

    def __init__(self, options: RunOptions, vocab: Vocabulary, shards: Shards, seed: int):
        self.options = options
        self.vocab = vocab
        self.shards = shards
        self.seed = seed
        reader = BidirectionalLMDataset if options.bidirectional else LMDataset
        self.reader = reader(shards, vocab, shuffle_on_load=True, seed=seed)
        self.positions: deque[Position] = deque()
        self.failures: list[BilmError] = []
        self._reading = threading.Lock()
        self._closed = False
        self._iterator: Any = iter(())

    def batches(self, devices: Devices, step: int = 0, position: Position | None = None) -> Any:
        """Return the iterator over the batches of the run after `step` steps, which have left the
        readers at a position."""

        def batches() -> Iterator[dict]:
            return self._until_closed(self._batches(devices, step, position))

        dataset = as_dataset(batches, batch_signature(self.options), devices.strategy)
        self._iterator = iter(dataset)
        return self._iterator

    def _batches(self, devices: Devices, step: int, position: Position | None) -> Iterator[dict]:
        """Yield the batches of each step, one per replica of this process, from a position on."""
        n_rows = self.options.batch_size
        n_all_rows = n_rows * devices.n_replicas
        rows = range(n_rows * devices.own.start, n_rows * devices.own.stop)
        n_steps = self.options.unroll_steps
        placed: Any = self.reader.iter_placed_batches(n_all_rows, n_steps, position, rows)
        for number, (window, place) in enumerate(placed, start=step):
            self.positions.append(place)
            for k, replica in enumerate(devices.own):
                of_replica = slice(k * n_rows, (k + 1) * n_rows)
                values = {name: ids[of_replica] for name, ids in window.items() if ids is not None}
                yield self.batch(values, number, replica)

    def batch(self, window: dict, step: int, replica: int) -> dict:
        """Return the batch of a replica from its rows of the window of a step: some rare words of
        the targets are replaced, and negatives are added."""
        options = self.options
        batch = model_batch(window, options.model)
        # TensorFlow keeps int32 in the host's memory if it computes on a GPU.
        batch = tf.nest.map_structure(lambda ids: ids.astype(np.int64), batch)
        rows = range(options.batch_size * replica, options.batch_size * (replica + 1))
        negatives = {}
        for k, (direction, targets) in enumerate(batch["targets"].items()):
            if options.once_from is not None:
                key = self.seed, step, k
                targets = with_unknown(targets, options.once_from, self.vocab.unk, key, rows)
                batch["targets"][direction] = targets
            if options.sample_softmax:
                negatives[direction] = draw_negatives(
                    self.vocab.size, options.n_negative_samples_batch,
                    (self.seed, step, replica, k), targets.reshape(-1),
                )  # fmt: skip
        return {**batch, "negatives": negatives} if negatives else batch

    def _until_closed(self, batches: Iterator[dict]) -> Iterator[dict]:
        """Yield batches until `close` is called, and remember the error that ends them."""
        while True:
            with self._reading:
                try:
                    batch = None if self._closed else next(batches, None)
                except BilmError as error:  # TensorFlow replaces it with another error
                    self.failures.append(error)
                    raise
            if batch is None:
                return
            yield batch

    def close(self) -> None:
        """Stop reading ahead, and consume the pipeline to its end.

        A TensorFlow thread that enters Python while the interpreter ends waits forever, and the
        process waits for the thread. This happens, for example, if the program ends with an error
        whose traceback still references the pipeline. The thread has left Python only when the
        pipeline has reached its end.
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
    def explaining(self) -> Iterator[None]:
        """Raise the error of a bad line instead of TensorFlow's error for it."""
        try:
            yield
        except tf.errors.OpError:
            if self.failures:
                raise self.failures[0] from None
            raise


def batch_signature(options: RunOptions) -> Any:
    """Return the `tf.TensorSpec` of each part of a replica's batch."""
    directions = options.model.directions
    of_window = tf.TensorSpec((options.batch_size, options.unroll_steps), tf.int64)
    signature: dict[str, Any] = {
        "places": dict.fromkeys(directions, of_window),
        "targets": dict.fromkeys(directions, of_window),
    }
    shapes = distinct_shapes(options.model)  # of words, or of each group of spelled tokens
    if options.char_cnn is None:
        signature["distinct"] = tf.TensorSpec(shapes, tf.int64)
    else:
        signature["distinct"] = tuple(tf.TensorSpec(shape, tf.int64) for shape in shapes)
    if options.sample_softmax:
        n_negatives = options.n_negative_samples_batch
        n_targets = options.batch_size * options.unroll_steps
        draws = Negatives(
            tf.TensorSpec((n_negatives,), tf.int64),
            tf.TensorSpec((n_negatives,), tf.float32),
            tf.TensorSpec((n_targets,), tf.float32),
        )
        signature["negatives"] = dict.fromkeys(directions, draws)
    return signature


def as_dataset(
    batches: Callable[[], Iterator[dict]], signature: dict, strategy: tf.distribute.Strategy
) -> Any:
    """Make a distributed `tf.data` pipeline that prefetches.

    TensorFlow prefetches each batch to the memory of its replica's device. The pipeline is declared
    endless: otherwise every step would look for the end of the batches, would wait for the answer
    of the device, and the sizes of the batches would not be known when the step is compiled.
    """

    def make(_):
        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
        endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        options = tf.data.Options()
        options.autotune.enabled = False  # its thread can take a minute to end
        return dataset.apply(endless).prefetch(PREFETCH).with_options(options)

    return strategy.distribute_datasets_from_function(make)
