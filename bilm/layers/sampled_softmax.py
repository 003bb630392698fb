"""The output layer of the language model: a sampled loss for training, the full loss otherwise."""

from typing import Any, NamedTuple

import keras
from keras import initializers, ops

from bilm.layers.functional import gather_rows, product
from bilm.layers.types import Tensor
from bilm.layers.weighted import WeightedLayer
from bilm.tensors import softmax

VOCABULARY_CHUNK = 32_768


class Negatives(NamedTuple):
    """Words sampled as negatives for one direction of a window, and expected numbers of draws."""

    ids: Tensor  # integer (S,), distinct
    sampled_expected_count: Tensor  # float (S,), of each of them
    true_expected_count: Tensor  # float (N,), of each target


class SampledSoftmax(WeightedLayer):
    """Cross-entropy of the next word.

    full loss:     log sum_v exp(s_v) - s_target,  s_v = W_v h + b_v
    sampled loss:  the same with s_v - log E(v) instead of s_v, over the target and the negatives

    E(v) is the expected number of draws of word v: some are sampled more often than others.

    Args:
        n_tokens, dim: vocabulary size V, and width P of the hidden vectors.
        precision: of the sampled loss, see `WeightedLayer`; the full loss is float32.

    Inputs: hidden vectors float `(N, P)`, targets integer `(N,)`, and `Negatives` for the sampled
    loss. Returns: float32 `(N,)`, the negative log-probability of each target in nats. The sampled
    loss is much lower than the full loss; do not exponentiate it to get a perplexity.
    Reference: Jean et al. 2015, arXiv:1412.2007.
    """

    def __init__(self, n_tokens: int, dim: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.n_tokens = n_tokens
        self.dim = dim

    def build(self, kernel: Tensor | None = None) -> None:
        """Create the variables; if `kernel` (V, P), a word table, is given, share it."""
        *own_kernel, bias = softmax(self.n_tokens, self.dim, shares_table=kernel is not None)
        normal = initializers.RandomNormal(0.0, self.dim**-0.5)
        self.kernel = kernel if kernel is not None else self.add_tensor(own_kernel[0], normal)
        self.bias = self.add_tensor(bias, "zeros")
        self.built = True

    def call(self, hidden: Tensor, targets: Tensor, negatives: Negatives | None = None) -> Tensor:
        """Return the loss of each target: the sampled loss if `negatives` are given."""
        if negatives is None:
            return self.log_normalizer(hidden) - self._scores(hidden, targets)
        target = self._scores(hidden, targets) - ops.log(negatives.true_expected_count)  # N
        kernel = gather_rows(self.kernel, negatives.ids)  # S, P
        bias = gather_rows(self.bias, negatives.ids)
        sampled = product(hidden, ops.transpose(kernel), self.precision) + bias  # N, S
        sampled = sampled - ops.log(negatives.sampled_expected_count)

        # A negative that equals the target is ignored.
        is_target = ops.equal(targets[:, None], negatives.ids[None, :])
        sampled = ops.where(is_target, -1e30, sampled)
        scores = ops.concatenate([target[:, None], sampled], axis=1)  # N, 1 + S
        return ops.logsumexp(scores, axis=1) - target

    def _scores(self, hidden: Tensor, words: Tensor) -> Tensor:
        """Return the score of a word for each hidden vector: float (N,)."""
        scores = ops.sum(hidden * gather_rows(self.kernel, words), axis=-1)
        return scores + gather_rows(self.bias, words)

    def log_normalizer(self, hidden: Tensor) -> Tensor:
        """Return log sum_v exp(s_v), one slice of the vocabulary at a time: (N, P) -> (N,)."""
        # Read once: TensorFlow copies a variable with updated rows each time it is read.
        kernel = ops.convert_to_tensor(self.kernel)
        bias = ops.convert_to_tensor(self.bias)
        starts = range(0, self.n_tokens, VOCABULARY_CHUNK)
        chunks = [slice(start, start + VOCABULARY_CHUNK) for start in starts]
        if len(chunks) > 1 and keras.backend.backend() == "tensorflow":
            from bilm.layers.tensorflow.full_softmax import log_normalizer

            return log_normalizer(hidden, kernel, bias, chunks)

        by_chunk = []  # N each
        for chunk in chunks:
            scores = ops.matmul(hidden, ops.transpose(kernel[chunk]))
            by_chunk.append(ops.logsumexp(scores + bias[chunk], axis=1))
        return ops.logsumexp(ops.stack(by_chunk), axis=0)
