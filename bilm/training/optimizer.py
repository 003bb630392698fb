"""Optimizers: mean of the gradients over replicas, clip by global norm, update; rows sparse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import tensorflow as tf

from bilm.training.devices import Devices

NORM = "gradient's norm"  # what the error is about where it is not finite


class Optimizer:
    """What all optimizers share; a new one names its slots and updates one variable.

    A slot is a number kept for each weight. Rows of a table that a step does not use have no
    gradient; neither they nor their slots are touched, so that a step costs what the gradient
    holds, whatever the size of the tables.

    Class attributes:
        SLOTS: the slots' names, which checkpoints store them under, and the values they start at.

    Args:
        variables: `tf.Variable`s, made in the strategy's scope as this object has to be.
        learning_rate: of every step.
        max_norm: bound on the global norm of the mean gradient.
        devices: whose replicas the gradients come from.
    """

    SLOTS: ClassVar[dict[str, float]]

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        learning_rate: float,
        max_norm: float,
        devices: Devices,
    ):
        self.variables, self.devices = list(variables), devices
        self.learning_rate, self.max_norm = learning_rate, max_norm
        self.slots = {
            name: [tf.Variable(tf.fill(v.shape, start), trainable=False) for v in self.variables]
            for name, start in self.SLOTS.items()
        }

    def rate(self, step: int) -> float:
        """Return the learning rate of step `step`, counted from 0."""
        del step
        return self.learning_rate

    def step_size(self, step: int) -> float:
        """Return the factor of the update of step `step`, counted from 0."""
        return self.rate(step)

    def apply(self, gradients: Sequence, step_size: tf.Tensor) -> tf.Tensor:
        """Update the variables; call it outside `strategy.run`.

        Args:
            gradients: one per variable, each a value per replica, dense or `tf.IndexedSlices`.
            step_size: float32 (), what the method `step_size` returns.
        Returns: the global norm of the mean gradient before clipping, float32 ().
        Raises: InvalidArgumentError, from the graph, if that norm is not finite; nothing has been
            updated then, since every update needs the norm.
        """
        means = [self._mean(g, v) for g, v in zip(gradients, self.variables, strict=True)]
        norm = tf.linalg.global_norm([self.devices.local(mean)[0] for mean in means])
        norm = tf.debugging.check_numerics(norm, NORM)
        scale = self.max_norm / tf.maximum(norm, self.max_norm)
        for variable, mean, *slots in zip(self.variables, means, *self.slots.values(), strict=True):
            self.devices.strategy.extended.update(
                variable, self._clip_and_update, args=(mean, scale, step_size, *slots), group=False
            )
        return norm

    def _mean(self, gradient, variable):
        """Average over replicas; rows that occur more than once are summed into one."""
        local = self.devices.local(gradient)
        if isinstance(local[0], tf.IndexedSlices):
            rows, places = tf.unique(tf.concat([g.indices for g in local], axis=0))
            values = tf.concat([g.values for g in local], axis=0) / len(local)
            values = tf.math.unsorted_segment_sum(values, places, tf.size(rows))
            return tf.IndexedSlices(values, rows)
        reduce_to = self.devices.strategy.extended.reduce_to
        return reduce_to(tf.distribute.ReduceOp.MEAN, gradient, variable)

    def _clip_and_update(self, variable, gradient, scale, step_size, *slots):
        if isinstance(gradient, tf.IndexedSlices):
            rows = gradient.indices
            return self.update_rows(variable, rows, gradient.values * scale, step_size, *slots)
        return self.update(variable, gradient * scale, step_size, *slots)

    def update(self, variable, gradient, step_size, *slots) -> tf.Operation:
        """Update a variable on one device, its slots in the order of `SLOTS`."""
        raise NotImplementedError

    def update_rows(self, variable, rows, gradient, step_size, *slots) -> tf.Operation:
        """Update the rows (N,) of a variable, each of which occurs once, by a gradient (N, ...)."""
        raise NotImplementedError


class Adagrad(Optimizer):
    """a += g^2; w -= rate g / sqrt(a), with a starting at 1 and no epsilon.

    That an unused row is not touched changes no number. The reference's rate is 0.2.

    Reference: Duchi et al. 2011.
    """

    SLOTS: ClassVar[dict[str, float]] = {"adagrad": 1.0}

    def update(self, variable, gradient, step_size, accumulator) -> tf.Operation:
        """See `Optimizer.update`."""
        return tf.raw_ops.ResourceApplyAdagradV2(
            var=variable.handle, accum=accumulator.handle, lr=step_size, epsilon=0.0, grad=gradient
        )

    def update_rows(self, variable, rows, gradient, step_size, accumulator) -> tf.Operation:
        """See `Optimizer.update_rows`."""
        return tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=variable.handle, accum=accumulator.handle, lr=step_size, epsilon=0.0,
            grad=gradient, indices=rows,
        )  # fmt: skip
