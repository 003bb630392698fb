"""The language model's output layer: a sampled loss for training, the full one for all else."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import initializers, ops

from bilm.layers.functional import checked_precision, gather_rows, product
from bilm.layers.weighted import WeightedLayer

VOCABULARY_CHUNK = 32_768


class Negatives(NamedTuple):
    """The draws of the sampled softmax for one direction of a window.

    Fields:
        ids: integer (S,), the sampled words, all distinct.
        sampled_expected_count: float (S,), how often each was expected to be drawn.
        true_expected_count: float (N,), the same for the N targets.
    """

    ids: object
    sampled_expected_count: object
    true_expected_count: object


@keras.saving.register_keras_serializable(package="bilm")
class SampledSoftmax(WeightedLayer):
    """Cross-entropy of the next word.

    Args:
        n_tokens: vocabulary size V.
        dim: width P of the vectors that it scores.
        precision: of the operands of the sampled loss's product, `float32` or `bfloat16`; the
            full loss is always in float32.

    Inputs: hidden vectors float `(N, P)`, targets integer `(N,)`, and for the sampled loss
    `negatives`. Returns: float32 `(N,)`, the negative log-probability of each target in nats. The
    sampled loss is well below the full one: it is no perplexity.
    Stored as `softmax/W` (V, P) and `softmax/b`.
    Reference: Jean et al. 2015, arXiv:1412.2007.
    """

    def __init__(self, n_tokens: int, dim: int, precision: str = "float32", **kwargs: Any):
        super().__init__(**kwargs)
        self.n_tokens = n_tokens
        self.dim = dim
        self.precision = checked_precision(precision)

    def build(self, kernel: Any = None) -> None:
        """Make the variables; with `kernel` (V, P), a word table, that one is shared."""
        normal = initializers.RandomNormal(0.0, self.dim**-0.5)
        if kernel is None:
            kernel = self.add_weight((self.n_tokens, self.dim), normal, name="kernel")
        self.kernel = kernel
        self.bias = self.add_weight((self.n_tokens,), "zeros", name="bias")
        self.built = True

    def call(self, hidden: Any, targets: Any, negatives: Negatives | None = None) -> Any:
        """Return the loss of each target, sampled where `negatives` are given."""
        if negatives is None:
            return self.full_loss(hidden, targets)
        return self.sampled_loss(hidden, targets, negatives)

    def sampled_loss(self, hidden: Any, targets: Any, negatives: Negatives) -> Any:
        """Score the target against the draws only, each corrected by its expected count."""
        true = ops.sum(hidden * gather_rows(self.kernel, targets), axis=-1)
        true = true + gather_rows(self.bias, targets) - ops.log(negatives.true_expected_count)
        rows = ops.transpose(gather_rows(self.kernel, negatives.ids))
        sampled = product(hidden, rows, self.precision)
        sampled = sampled + gather_rows(self.bias, negatives.ids)
        sampled = sampled - ops.log(negatives.sampled_expected_count)  # N, S
        # A draw that happens to be the target is no negative.
        accidental = ops.equal(targets[:, None], negatives.ids[None, :])
        sampled = ops.where(accidental, -1e30, sampled)
        return ops.logsumexp(ops.concatenate([true[:, None], sampled], axis=1), axis=1) - true

    def full_loss(self, hidden: Any, targets: Any) -> Any:
        """Score the target against every word, a slice of the vocabulary at a time."""
        true = ops.sum(hidden * gather_rows(self.kernel, targets), axis=-1)
        true = true + gather_rows(self.bias, targets)
        return self.log_normalizer(hidden) - true

    def log_normalizer(self, hidden: Any) -> Any:
        """Return log sum_v exp(score_v): float (N, P) -> (N,), in memory N x VOCABULARY_CHUNK."""
        # Read once: TensorFlow copies a variable whose rows were updated each time it is read.
        kernel, bias = ops.convert_to_tensor(self.kernel), ops.convert_to_tensor(self.bias)
        starts = range(0, self.n_tokens, VOCABULARY_CHUNK)
        chunks = [slice(start, start + VOCABULARY_CHUNK) for start in starts]
        if len(chunks) > 1 and keras.backend.backend() == "tensorflow":
            from bilm.layers.tensorflow.sampled_softmax import log_normalizer

            return log_normalizer(hidden, kernel, bias, chunks)
        parts = []
        for chunk in chunks:
            logits = ops.matmul(hidden, ops.transpose(kernel[chunk])) + bias[chunk]
            parts.append(ops.logsumexp(logits, axis=1))
        return parts[0] if len(parts) == 1 else ops.logsumexp(ops.stack(parts), axis=0)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            **super().get_config(),
            "n_tokens": self.n_tokens,
            "dim": self.dim,
            "precision": self.precision,
        }
