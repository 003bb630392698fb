"""Windows of text -> what a training step eats, made on the host beside the step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.data.windows import distinct_shapes, model_batch
from bilm.errors import BilmError
from bilm.layers.sampled_softmax import Negatives
from bilm.options import ModelOptions
from bilm.training.sampling import LogUniformSampler

PREFETCH = 8


def replica_batches(
    windows: Iterable[dict],
    options: ModelOptions,
    replicas: int | range,
    sampler: LogUniformSampler | None,
    first_step: int = 0,
    share_negatives: bool = False,
) -> Iterator[dict]:
    """Cut each window into its replicas' rows, replica after replica, and add their negatives.

    Args:
        windows: the rows of these replicas, those of replica 0 above those of replica 1.
        options: what shapes the model.
        replicas: the numbers of the replicas that share a window, or how many there are.
        sampler: draws the negatives; None for the full softmax.
        first_step: the number of the first window, by which draws are keyed.
        share_negatives: whether all replicas and directions get the same draws.
    """
    replicas = range(replicas) if isinstance(replicas, int) else replicas
    for step, window in enumerate(windows, start=first_step):
        n_rows = window["token_ids"].shape[0] // len(replicas)
        for place, replica in enumerate(replicas):
            rows = slice(place * n_rows, (place + 1) * n_rows)
            part = {k: v[rows] for k, v in window.items() if v is not None}
            batch = model_batch(part, options)
            if sampler is not None:
                # They are compared with the draws: TensorFlow has no kernel for that on a GPU
                # with int32.
                targets = {d: ids.astype(np.int64) for d, ids in batch["targets"].items()}
                batch["targets"] = targets
                batch["negatives"] = {
                    d: sampler.draw(
                        (step, 0, 0) if share_negatives else (step, replica, k), ids.reshape(-1)
                    )
                    for k, (d, ids) in enumerate(targets.items())
                }
            yield batch


def batch_signature(
    options: ModelOptions, batch_size: int, unroll_steps: int, n_negatives: int
) -> Any:
    """Return the `tf.TensorSpec` of each part of a replica's batch; 0 negatives for none."""
    directions = options.directions
    shape = batch_size, unroll_steps
    shapes = distinct_shapes(options)
    signature = {
        "distinct": (
            tf.TensorSpec(shapes, tf.int32)
            if options.char_cnn is None
            else tuple(tf.TensorSpec(shape, tf.int32) for shape in shapes)
        ),
        "places": dict.fromkeys(directions, tf.TensorSpec(shape, tf.int32)),
        "targets": dict.fromkeys(
            directions, tf.TensorSpec(shape, tf.int64 if n_negatives else tf.int32)
        ),
    }
    if n_negatives:
        draws = Negatives(
            tf.TensorSpec((n_negatives,), tf.int64),
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
    endless: bool = False,
) -> Any:
    """Make a distributed `tf.data` pipeline that prefetches.

    Args:
        batches: makes the iterator over replicas' batches anew.
        signature: of a batch, from `batch_signature`.
        strategy: where the batches go.
        failures: takes the errors of bad text; TensorFlow raises one of its own instead.
        endless: whether the batches never end; else several hosts ask each other at each step.
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
        if endless:
            dataset = dataset.apply(
                tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
            )
        return dataset.prefetch(PREFETCH)

    return strategy.distribute_datasets_from_function(make)
