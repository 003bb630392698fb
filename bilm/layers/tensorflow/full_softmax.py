"""The normalizer of the full softmax on TensorFlow, with the memory of one slice of the vocabulary.

Otherwise TensorFlow may compute all slices at once and store their scores for the gradient. Here,
each slice is computed after the previous one, and the gradient recomputes the scores.
"""

from collections.abc import Sequence

import tensorflow as tf

from bilm.layers.types import Tensor


def log_normalizer(
    hidden: Tensor, kernel: Tensor, bias: Tensor, chunks: Sequence[slice]
) -> tf.Tensor:
    """Return log sum_v exp(score_v): hidden float (N, P), kernel (V, P), bias (V,) -> (N,)."""

    @tf.custom_gradient
    def run(hidden, kernel, bias):
        by_chunk = []  # log sum exp of the scores of each slice: N
        for chunk in chunks:
            rows = _after(hidden, by_chunk)
            scores = _scores(rows, kernel, bias, chunk)
            by_chunk.append(tf.reduce_logsumexp(scores, axis=1))
        total = tf.reduce_logsumexp(tf.stack(by_chunk), axis=0)  # N

        def gradient(upstream):
            d_hidden = tf.zeros_like(hidden)
            d_kernel = []
            d_bias = []
            for chunk in chunks:
                rows = _after(hidden, [d_hidden, *d_kernel[-1:], *d_bias[-1:]])
                scores = _scores(rows, kernel, bias, chunk)
                probabilities = tf.exp(scores - total[:, None])
                d_scores = probabilities * upstream[:, None]  # N, slice
                d_hidden += tf.matmul(d_scores, kernel[chunk])
                d_kernel.append(tf.matmul(d_scores, hidden, transpose_a=True))
                d_bias.append(tf.reduce_sum(d_scores, axis=0))
            return d_hidden, tf.concat(d_kernel, axis=0), tf.concat(d_bias, axis=0)

        return total, gradient

    return run(*map(tf.convert_to_tensor, (hidden, kernel, bias)))  # `run` requires tensors


def _scores(hidden, kernel, bias, chunk):
    """Return the scores of the words of a slice: (N, P), (V, P), (V,) -> (N, slice)."""
    return tf.matmul(hidden, kernel[chunk], transpose_b=True) + bias[chunk]


def _after(tensor, done):
    with tf.control_dependencies(done):
        return tf.identity(tensor)
