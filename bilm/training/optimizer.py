"""Adagrad over replicas: mean of the gradients, clip by global norm, update; rows stay sparse."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

INITIAL_ACCUMULATOR = 1.0
NOT_FINITE = "gradient's norm"  # what the error is about where it is not finite


class Adagrad:
    """Adagrad whose step costs what the gradient holds, whatever the size of the tables.

    a += g^2; w -= learning_rate g / sqrt(a), with a starting at 1 and no epsilon. Rows of a table
    that a step did not use have no gradient and are not touched, which changes no number.

    Args:
        variables: `tf.Variable`s, made in the strategy's scope as this object has to be.
        learning_rate: 0.2 in the reference.
        max_norm: bound on the global norm of the mean gradient.
        strategy: whose replicas the gradients come from.
    Reference: Duchi et al. 2011.
    """

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        learning_rate: float,
        max_norm: float,
        strategy: tf.distribute.Strategy,
    ):
        self.variables, self.strategy = list(variables), strategy
        self.learning_rate, self.max_norm = learning_rate, max_norm
        self.accumulators = [
            tf.Variable(tf.fill(v.shape, INITIAL_ACCUMULATOR), trainable=False)
            for v in self.variables
        ]

    def apply(self, gradients: Sequence) -> tf.Tensor:
        """Update the variables; call it outside `strategy.run`.

        Args:
            gradients: one a variable, each a value a replica, dense or `tf.IndexedSlices`.
        Returns: the global norm of the mean gradient before clipping, float32 ().
        Raises: InvalidArgumentError, from the graph, if that norm is not finite; nothing has been
            updated then, since every update needs the norm.
        """
        means = [self._mean(g, v) for g, v in zip(gradients, self.variables, strict=True)]
        firsts = [self.strategy.experimental_local_results(mean)[0] for mean in means]
        norm = tf.debugging.check_numerics(tf.linalg.global_norm(firsts), NOT_FINITE)
        scale = self.max_norm / tf.maximum(norm, self.max_norm)
        for variable, accumulator, mean in zip(
            self.variables, self.accumulators, means, strict=True
        ):
            self.strategy.extended.update(
                variable, self._update, args=(accumulator, mean, scale), group=False
            )
        return norm

    def _mean(self, gradient, variable):
        """Average over replicas; rows that occur more than once are summed into one."""
        local = self.strategy.experimental_local_results(gradient)
        if isinstance(local[0], tf.IndexedSlices):
            rows, places = tf.unique(tf.concat([g.indices for g in local], axis=0))
            values = tf.concat([g.values for g in local], axis=0) / len(local)
            values = tf.math.unsorted_segment_sum(values, places, tf.size(rows))
            return tf.IndexedSlices(values, rows)
        reduce_to = self.strategy.extended.reduce_to
        return reduce_to(tf.distribute.ReduceOp.MEAN, gradient, variable)

    def _update(self, variable, accumulator, gradient, scale):
        common = dict(var=variable.handle, accum=accumulator.handle, lr=self.learning_rate)
        if isinstance(gradient, tf.IndexedSlices):
            return tf.raw_ops.ResourceSparseApplyAdagradV2(
                **common, epsilon=0.0, grad=gradient.values * scale, indices=gradient.indices
            )
        return tf.raw_ops.ResourceApplyAdagradV2(**common, epsilon=0.0, grad=gradient * scale)
