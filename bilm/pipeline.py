"""Windows of text -> what a training step eats, made on the host beside the step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import tensorflow as tf

from bilm.errors import BilmError
from bilm.language_model import DIRECTIONS
from bilm.layers.sampled_softmax import Negatives
from bilm.options import ModelOptions
from bilm.sampling import LogUniformSampler
from bilm.vocabulary import PAD_CHAR

PREFETCH = 8
SUFFIX = {"forward": "", "backward": "_reverse"}


def model_batch(window: dict, options: ModelOptions) -> dict:
    """Replace a window's tokens by the list of the distinct ones and places in it.

    The encoder then sees each distinct token once. Nothing in it depends on the place, so the
    numbers are the same; of the tokens in 32 x 20 windows of two directions, 43 % are distinct.

    Args:
        window: as `LMDataset.iter_batches` gives it.
        options: what shapes the model.
    Returns: dict of `distinct` int32 (U, C) or (U,), and for each direction `places` and
        `targets`, int32 (B, T). C is cut after the longest token and the widest filter: every
        window past it sees padding alone, as one before it does.
    """
    directions = DIRECTIONS if options.bidirectional else DIRECTIONS[:1]
    key = "token_ids" if options.char_cnn is None else "tokens_characters"
    tokens = np.stack([window[key + SUFFIX[d]] for d in directions])
    lead = tokens.shape[:3]
    if options.char_cnn is None:
        distinct, places = np.unique(tokens.reshape(-1), return_inverse=True)
    else:
        distinct, places = _distinct_rows(tokens.reshape(-1, tokens.shape[-1]).astype(np.int16))
        widest = max(width for width, _ in options.char_cnn.filters)
        longest = int((distinct != PAD_CHAR).any(axis=0).sum())
        distinct = distinct[:, : longest + widest]
    places = places.reshape(lead).astype(np.int32)
    return {
        "distinct": distinct.astype(np.int32),
        "places": dict(zip(directions, places, strict=True)),
        "targets": {d: window["next_token_id" + SUFFIX[d]].astype(np.int32) for d in directions},
    }


def _distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give the distinct rows of a matrix and each row's place among them; bytes are compared."""
    rows = np.ascontiguousarray(rows)
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
    _, first, places = np.unique(keys, return_index=True, return_inverse=True)
    return rows[first], places


def replica_batches(
    windows: Iterable[dict],
    options: ModelOptions,
    n_replicas: int,
    sampler: LogUniformSampler | None,
    first_step: int = 0,
) -> Iterator[dict]:
    """Cut each window into its replicas' rows, replica after replica, and add their negatives.

    Args:
        windows: global windows; the rows of replica 0 stand above those of replica 1.
        options: what shapes the model.
        n_replicas: how many replicas share a window.
        sampler: draws the negatives; None for the full softmax.
        first_step: the number of the first window, by which draws are keyed.
    """
    for step, window in enumerate(windows, start=first_step):
        n_rows = window["token_ids"].shape[0] // n_replicas
        for replica in range(n_replicas):
            rows = slice(replica * n_rows, (replica + 1) * n_rows)
            part = {k: v[rows] for k, v in window.items() if v is not None}
            batch = model_batch(part, options)
            if sampler is not None:
                batch["negatives"] = {
                    d: sampler.draw((step, replica, k), batch["targets"][d].reshape(-1))
                    for k, d in enumerate(batch["targets"])
                }
            yield batch


def batch_signature(options: ModelOptions, batch_size: int, unroll_steps: int, n_negatives: int):
    """Give the `tf.TensorSpec` of each part of a replica's batch; 0 negatives for none."""
    directions = DIRECTIONS if options.bidirectional else DIRECTIONS[:1]
    window = tf.TensorSpec((batch_size, unroll_steps), tf.int32)
    signature = {
        "distinct": tf.TensorSpec((None,) if options.char_cnn is None else (None, None), tf.int32),
        "places": dict.fromkeys(directions, window),
        "targets": dict.fromkeys(directions, window),
    }
    if n_negatives:
        draws = Negatives(
            tf.TensorSpec((n_negatives,), tf.int32),
            tf.TensorSpec((n_negatives,), tf.float32),
            tf.TensorSpec((batch_size * unroll_steps,), tf.float32),
        )
        signature["negatives"] = dict.fromkeys(directions, draws)
    return signature


def as_dataset(
    batches: Callable[[], Iterator[dict]],
    signature: dict,
    strategy: tf.distribute.Strategy,
    failures: list[BilmError] | None = None,
):
    """Make a distributed `tf.data` pipeline that prefetches.

    Args:
        batches: makes the iterator over replicas' batches anew.
        signature: of a batch, from `batch_signature`.
        strategy: where the batches go.
        failures: takes the errors of bad text; TensorFlow raises one of its own instead.
    """

    def remembering():
        try:
            yield from batches()
        except BilmError as error:
            if failures is not None:
                failures.append(error)
            raise

    def make(_):
        dataset = tf.data.Dataset.from_generator(remembering, output_signature=signature)
        return dataset.prefetch(PREFETCH)

    return strategy.distribute_datasets_from_function(make)
