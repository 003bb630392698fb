"""The normalizer of `SampledSoftmax` on TensorFlow, in the memory of one slice of the vocabulary.

Left to itself TensorFlow may work at all slices at once, and keeps the scores of each for the
gradient: 4 bytes for every prediction and word. Here a slice waits for the one before it, and the
gradient makes the scores again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def log_normalizer(hidden: Any, kernel: Any, bias: Any, chunks: Sequence[slice]) -> Any:
    """Return log sum_v exp(score_v).

    Args:
        hidden: float (N, P).
        kernel, bias: float (V, P) and (V,).
        chunks: slices of the vocabulary, which together are all of it.
    Returns: float (N,).
    """

    @tf.custom_gradient
    def run(hidden, kernel, bias):
        parts = []
        for chunk in chunks:
            rows = _after(hidden, parts)
            parts.append(tf.reduce_logsumexp(_scores(rows, kernel, bias, chunk), axis=1))
        total = tf.reduce_logsumexp(tf.stack(parts), axis=0)

        def gradient(upstream):
            d_hidden, d_kernel, d_bias = tf.zeros_like(hidden), [], []
            for chunk in chunks:
                rows = _after(hidden, [d_hidden, *d_kernel[-1:], *d_bias[-1:]])
                shares = tf.exp(_scores(rows, kernel, bias, chunk) - total[:, None])
                d_scores = shares * upstream[:, None]
                d_hidden += tf.matmul(d_scores, kernel[chunk])
                d_kernel.append(tf.matmul(d_scores, hidden, transpose_a=True))
                d_bias.append(tf.reduce_sum(d_scores, axis=0))
            return d_hidden, tf.concat(d_kernel, axis=0), tf.concat(d_bias, axis=0)

        return total, gradient

    return run(*map(tf.convert_to_tensor, (hidden, kernel, bias)))  # `run` takes no variables


def _scores(hidden: Any, kernel: Any, bias: Any, chunk: slice) -> Any:
    return tf.matmul(hidden, kernel[chunk], transpose_b=True) + bias[chunk]


def _after(tensor: Any, done: Sequence[tf.Tensor]) -> Any:
    """Return a tensor that is not there before others are."""
    with tf.control_dependencies(done):
        return tf.identity(tensor)
