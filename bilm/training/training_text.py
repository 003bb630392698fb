"""The text of a run as batches of training steps, made on the host while earlier steps run."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from bilm.data.dataset import BidirectionalLMDataset, LMDataset
from bilm.data.shards import Shards
from bilm.data.stream import Position
from bilm.data.vocabulary import Vocabulary
from bilm.data.windows import group_lengths, model_batch
from bilm.layers.sampled_softmax import Negatives
from bilm.options.run_options import RunOptions
from bilm.support.process import read_ahead
from bilm.training.devices import Batches, Devices
from bilm.training.sampling import draw_negatives, with_unknown

PREFETCH = 8  # steps whose batches are read ahead


class TrainingText:
    """The text of a run, read ahead of the steps. Options are of one replica."""

    def __init__(self, options: RunOptions, vocab: Vocabulary, shards: Shards, seed: int):
        self.options = options
        self.vocab = vocab
        self.seed = seed
        reader = BidirectionalLMDataset if options.bidirectional else LMDataset
        self.reader = reader(shards, vocab, shuffle_on_load=True, seed=seed)

    def batches(
        self, devices: Devices, step: int = 0, position: Position | None = None
    ) -> Iterator[tuple[Batches, Position]]:
        """Read the batches after `step` steps, which have left the readers at a position. Each item
        is the argument of `Trainer.step`, and the position after it. Raises: DataError."""
        ahead = read_ahead(self._batches(devices, step, position), PREFETCH)
        return ((devices.place(batches), place) for batches, place in ahead)

    def _batches(
        self, devices: Devices, step: int, position: Position | None
    ) -> Iterator[tuple[list[dict], Position]]:
        """Yield the batches of each step, one per replica of this process, and the position."""
        n_rows = self.options.batch_size
        n_all_rows = n_rows * devices.n_replicas
        rows = range(n_rows * devices.own.start, n_rows * devices.own.stop)
        n_steps = self.options.unroll_steps
        placed = self.reader.iter_placed_batches(n_all_rows, n_steps, position, rows)
        for number, (window, place) in enumerate(placed, start=step):
            batches = []
            for k, replica in enumerate(devices.own):
                of_replica = slice(k * n_rows, (k + 1) * n_rows)
                values = {name: ids[of_replica] for name, ids in window.items()}
                batches.append(self.batch(values, number, replica))
            yield batches, place

    def batch(self, window: dict, step: int, replica: int) -> dict:
        """Return a replica's rows of a window, with negatives and rare targets replaced."""
        options = self.options
        batch = model_batch(window, options.model, self.reader.words.characters)
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


def batch_signature(options: RunOptions) -> Any:
    """Return the `tf.TensorSpec` of each part of a replica's batch."""
    directions = options.model.directions
    of_window = tf.TensorSpec((options.batch_size, options.unroll_steps), tf.int64)
    signature: dict[str, Any] = {
        "places": dict.fromkeys(directions, of_window),
        "targets": dict.fromkeys(directions, of_window),
    }
    if options.char_cnn is None:
        signature["distinct"] = tf.TensorSpec((None,), tf.int64)
    else:
        max_lengths, widest = group_lengths(options.char_cnn)
        widths = [*(length + widest for length in max_lengths), None]
        signature["distinct"] = tuple(tf.TensorSpec((None, width), tf.int64) for width in widths)
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
