"""The maximum of `CharacterCNN` on TensorFlow, with a hand-written gradient.

All filters at one position are computed as one product, followed by a running maximum, so that the
scores of a position stay in the processor's cache. A convolution would write all places of all
filters to memory and read them again for the maximum and for the gradient.
"""

from collections.abc import Sequence

import tensorflow as tf

from bilm.layers.tensorflow.lstm_loop import transposed_copy


def maximum_over_places(
    characters: tf.Tensor, kernels: Sequence[tf.Tensor], precision: str
) -> tf.Tensor:
    """Return the maximum of each filter over the places of the widest filter, before bias and
    activation: float32 (U, C, E), C static, and (width, E, n) for each width -> (U, F)."""
    _, n_chars, dim = characters.shape
    widest = max(kernel.shape[0] for kernel in kernels)
    operands = tf.as_dtype(precision)

    # One matrix of all filters; narrow filters have zeros below their rows.
    same_width = []
    for kernel in kernels:
        n_missing = widest - kernel.shape[0]
        same_width.append(tf.pad(kernel, [[0, n_missing], [0, 0], [0, 0]]))
    kernel = tf.reshape(tf.concat(same_width, axis=2), (widest * dim, -1))  # widest E, F
    flat = tf.reshape(characters, (-1, n_chars * dim))  # U, C E
    starts = range(0, (n_chars - widest + 1) * dim, dim)  # of the places

    @tf.custom_gradient
    def run(flat, kernel):
        rounded = tf.cast(flat, operands)
        weight = tf.cast(kernel, operands)
        windows = [rounded[:, start : start + widest * dim] for start in starts]  # U, widest E
        scores = [tf.matmul(window, weight) for window in windows]  # U, F
        best = scores[0]
        for score in scores[1:]:
            best = tf.maximum(best, score)

        def gradient(d_best):
            """Return the gradients; among equal maxima, the first one receives the gradient."""
            d_best = tf.cast(d_best, operands)
            transposed = transposed_copy(tf.cast(kernel, operands))  # F, widest E
            zeros = tf.zeros_like(d_best)
            d_windows = []
            d_kernel = []
            for start, window, score in zip(starts, windows, scores, strict=True):
                # Where the maximum is at this place, and was not at an earlier one.
                d_score = tf.where(tf.equal(score, best), d_best, zeros)  # U, F
                d_best -= d_score

                d_weight = tf.matmul(window, d_score, transpose_a=True)  # widest E, F
                d_kernel.append(tf.cast(d_weight, kernel.dtype))

                d_window = tf.matmul(d_score, transposed)  # U, widest E
                d_window = tf.cast(d_window, flat.dtype)
                n_after = flat.shape[1] - start - window.shape[1]
                d_windows.append(tf.pad(d_window, [[0, 0], [start, n_after]]))  # U, C E
            return tf.add_n(d_windows), tf.add_n(d_kernel)

        return tf.cast(best, flat.dtype), gradient

    return run(flat, kernel)
