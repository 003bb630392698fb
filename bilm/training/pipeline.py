"""Converts windows of text to the batches of training steps, on the host, while earlier steps
run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.data.windows import distinct_shapes, model_batch
from bilm.errors import BilmError
from bilm.layers.sampled_softmax import Negatives
from bilm.options.model_options import ModelOptions
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
    """Split each window into one batch per replica, in the order of the replicas, and add the
    negatives.

    Args:
        windows: windows with the rows of all these replicas, in the order of the replicas.
        options: options of the model.
        replicas: numbers of the replicas that share a window, or their count.
        sampler: draws the negatives; None for the full softmax.
        first_step: step of the first window; draws depend on the step.
        share_negatives: whether all replicas and directions use the same negatives.
    """
    replicas = range(replicas) if isinstance(replicas, int) else replicas
    for step, window in enumerate(windows, start=first_step):
        n_rows = window["token_ids"].shape[0] // len(replicas)
        for place, replica in enumerate(replicas):
            rows = slice(place * n_rows, (place + 1) * n_rows)
            part = {k: v[rows] for k, v in window.items() if v is not None}
            batch = model_batch(part, options)
            if sampler is not None:
                # Targets are compared with the negatives, and TensorFlow has no int32 kernel for
                # this comparison on GPUs.
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
    """Return the `tf.TensorSpec` of each part of a replica's batch; `n_negatives` is 0 for the
    full softmax."""
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
        batches: returns a new iterator over replicas' batches.
        signature: signature of a batch, from `batch_signature`.
        strategy: strategy whose replicas receive the batches.
        failures: list to which errors in the text are appended, because TensorFlow replaces them
            with an error of its own.
        endless: whether the number of batches is unlimited, so that hosts need not agree on the end
            at each step.
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
