"""Optimizers: average the gradients over replicas, clip them by global norm, and update the
weights; rows of tables are updated sparsely."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from bilm.tensors import Kind, row_of
from bilm.training.devices import Devices

NORM = "gradient's norm"  # named in the error if it is not finite


class Optimizer:
    """Base class of optimizers; a subclass names its slots and updates one variable.

    A slot is a number kept for each weight. Rows of a table that a step does not use, and their
    slots, are not touched, so the cost of a step does not depend on the size of the tables.

    `SLOTS` are initial values by the slots' names, which are also their names in checkpoints;
    `slots` are `tf.Variable`s by the slot's name and the name of their variable. `variables` are
    `tf.Variable`s by their stored names, created in the strategy's scope, as this object must be;
    `max_norm` bounds the global norm of the mean gradient.
    """

    SLOTS: ClassVar[dict[str, float]]
    # Update a variable on one device, or the distinct rows of a gradient, `tf.IndexedSlices`: name,
    # variable, gradient, step size and the slots in the order of `_slots_of`.
    _update: Callable[..., Any]
    _update_rows: Callable[..., Any]

    def __init__(self, variables: Mapping[str, tf.Variable], max_norm: float, devices: Devices):
        self.variables = dict(variables)
        self.max_norm = max_norm
        self.devices = devices
        self.slots: dict[str, dict[str, tf.Variable]] = {slot: {} for slot in self.SLOTS}
        for name, variable in self.variables.items():
            for slot in self._slots_of(name):
                filled = tf.fill(variable.shape, self.SLOTS[slot])
                self.slots[slot][name] = tf.Variable(filled, trainable=False)

    @classmethod
    def _slots_of(cls, name: str) -> Sequence[str]:
        return tuple(cls.SLOTS)

    def step_size(self, step: int, rate: float) -> Any:
        """Return the factor of the update of step `step`, counted from 0, or of each kind of it."""
        return rate

    def apply(
        self, gradients: Sequence, step_size: tf.Tensor, decay: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Update the variables; call it outside `strategy.run`.

        Args:
            gradients: one per variable, each a value per replica, dense or `tf.IndexedSlices`.
            step_size: float32, what the method `step_size` returns.
            decay: float32 (), the part of each matrix and of each used row of a table that is
                subtracted before the update (decoupled weight decay, Loshchilov and Hutter 2019,
                arXiv:1711.05101); biases do not decay. None for no decay.
        Returns: the global norm of the mean gradient before clipping, float32 ().
        Raises: InvalidArgumentError, from the graph, before any update, if it is not finite.
        """
        means = list(map(self._mean, gradients, self.variables.values()))
        norm = tf.linalg.global_norm([self.devices.local(mean)[0] for mean in means])
        norm = tf.debugging.check_numerics(norm, NORM)
        scale = self.max_norm / tf.maximum(norm, self.max_norm)  # of the clipped gradient

        for (name, variable), mean in zip(self.variables.items(), means, strict=True):
            slots = [self.slots[slot][name] for slot in self._slots_of(name)]
            self.devices.strategy.extended.update(
                variable,
                functools.partial(self._clip_and_update, name),
                args=(mean, scale, step_size, decay, *slots),
                group=False,
            )
        return norm

    def _mean(self, gradient, variable):
        """Average over replicas; repeated rows are summed."""
        if isinstance(self.devices.local(gradient)[0], tf.IndexedSlices):
            total = self.devices.summed_slices(gradient)
            return tf.IndexedSlices(total.values / self.devices.n_replicas, total.indices)
        reduce_to = self.devices.strategy.extended.reduce_to
        return reduce_to(tf.distribute.ReduceOp.MEAN, gradient, variable)

    def _clip_and_update(self, name, variable, gradient, scale, step_size, decay, *slots):
        """Clip the mean gradient, decay the variable and update it, on one device."""
        is_sparse = isinstance(gradient, tf.IndexedSlices)
        if decay is not None and len(variable.shape) > 1:
            with tf.control_dependencies([scale]):  # only if the norm is finite
                if is_sparse:
                    old = _gathered(variable, gradient.indices)
                    tf.raw_ops.ResourceScatterSub(
                        resource=variable.handle, indices=gradient.indices, updates=decay * old
                    )
                else:
                    variable.assign_sub(decay * variable)
        if is_sparse:
            clipped = tf.IndexedSlices(gradient.values * scale, gradient.indices)
            return self._update_rows(name, variable, clipped, step_size, *slots)
        return self._update(name, variable, gradient * scale, step_size, *slots)


class Adagrad(Optimizer):
    """a += g^2; w -= rate g / sqrt(a), with a starting at 1 and no epsilon.

    Skipping unused rows does not change the result. The reference's rate is 0.2.

    Reference: Duchi et al. 2011.
    """

    SLOTS: ClassVar[dict[str, float]] = {"adagrad": 1.0}

    def _update(self, name, variable, gradient, step_size, accumulator):
        return tf.raw_ops.ResourceApplyAdagradV2(
            var=variable.handle, accum=accumulator.handle, lr=step_size, epsilon=0.0, grad=gradient
        )

    def _update_rows(self, name, variable, gradient, step_size, accumulator):
        return tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=variable.handle, accum=accumulator.handle, lr=step_size, epsilon=0.0,
            grad=gradient.values, indices=gradient.indices,
        )  # fmt: skip


class Adam(Optimizer):
    """m += (1 - b1)(g - m); s += (1 - b2)(g^2 - s); w -= rate c m / (sqrt(s) + epsilon).

    c = sqrt(1 - b2^t) / (1 - b1^t) corrects both averages for their start at 0, where t counts the
    steps of the run from 1. This is the paper's second form, without a correction of epsilon.

    The averages of a row do not change in steps that do not use it, but t counts all steps: a row
    that is first used late moves by up to sqrt(10) times the rate. Decaying the averages would
    touch whole tables.

    TensorFlow has a kernel for dense gradients but none for rows, and Keras' Adam makes the
    gradient of rows dense. This class therefore gathers, updates and scatters rows itself.

    Reference: Kingma and Ba 2015, arXiv:1412.6980.
    """

    SLOTS: ClassVar[dict[str, float]] = {"adam_mean": 0.0, "adam_square": 0.0}
    BETA_1 = 0.9
    BETA_2 = 0.999
    EPSILON = 1e-8

    def step_size(self, step: int, rate: float) -> Any:
        """Return the rate times c: see the class."""
        t = step + 1
        return rate * math.sqrt(1 - self.BETA_2**t) / (1 - self.BETA_1**t)

    def _update(self, name, variable, gradient, step_size, mean, square):
        return tf.raw_ops.ResourceApplyAdam(
            var=variable.handle, m=mean.handle, v=square.handle, grad=gradient, lr=step_size,
            beta1=self.BETA_1, beta2=self.BETA_2, epsilon=self.EPSILON,
            beta1_power=0.0, beta2_power=0.0,  # the correction is in the step size
        )  # fmt: skip

    def _update_rows(self, name, variable, gradient, step_size, mean, square):
        rows = gradient.indices
        means = self._average(mean, rows, gradient.values, self.BETA_1)
        squares = self._average(square, rows, tf.square(gradient.values), self.BETA_2)
        change = step_size * means / (tf.sqrt(squares) + self.EPSILON)
        return tf.raw_ops.ResourceScatterSub(resource=variable.handle, indices=rows, updates=change)

    @staticmethod
    def _average(slot, rows, values, beta):
        """Add values to the moving averages of rows; return the averages."""
        old = _gathered(slot, rows)
        new = old + (1 - beta) * (values - old)
        tf.raw_ops.ResourceScatterUpdate(resource=slot.handle, indices=rows, updates=new)
        return new


class Muon(Adam):
    """m = b m + g; w -= rate 0.2 sqrt(max(rows, columns)) orthogonal(b m + g), for each matrix
    between layers; Adam for tables, filters and biases.

    `orthogonal` replaces the singular values of a matrix by about 1 (Newton-Schulz iteration with
    the coefficients of Jordan et al.). Each gate of an LSTM is two matrices: one multiplies the
    input, the other the hidden state. The factor makes updates about as large as Adam's, so that
    both use the same rate.

    References: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon; Liu et al. 2025,
    arXiv:2502.16982 (the factor).
    """

    SLOTS: ClassVar[dict[str, float]] = {**Adam.SLOTS, "muon_mean": 0.0}
    MOMENTUM = 0.95
    N_ITERATIONS = 5
    UPDATE_RMS = 0.2
    COEFFICIENTS = 3.4445, -4.7750, 2.0315

    @classmethod
    def _slots_of(cls, name: str) -> Sequence[str]:
        return ("muon_mean",) if row_of(name).kind is Kind.MATRIX else tuple(Adam.SLOTS)

    def step_size(self, step: int, rate: float) -> tuple[float, float]:
        """Return the factors of Adam's updates and of those of matrices."""
        return super().step_size(step, rate), rate

    def _update(self, name, variable, gradient, step_size, *slots):
        row = row_of(name)
        if row.kind is not Kind.MATRIX:
            return super()._update(name, variable, gradient, step_size[0], *slots)
        (slot,) = slots
        mean = self.MOMENTUM * slot.value() + gradient
        slot.assign(mean)
        change = self.change(self.MOMENTUM * mean + gradient, row.blocks)
        return variable.assign_sub(step_size[1] * change)

    def _update_rows(self, name, variable, gradient, step_size, *slots):
        return super()._update_rows(name, variable, gradient, step_size[0], *slots)

    def change(self, matrix: tf.Tensor, n_blocks: tuple[int, int]) -> tf.Tensor:
        """Return the update of a tensor (rows, columns) at rate 1, whose blocks are matrices."""
        n_rows, n_columns = matrix.shape
        above, beside = n_blocks
        height = n_rows // above
        width = n_columns // beside
        blocks = tf.reshape(matrix, (above, height, beside, width))
        blocks = tf.transpose(blocks, (0, 2, 1, 3))  # above, beside, height, width

        changes = self.orthogonal(blocks) * self.UPDATE_RMS * math.sqrt(max(height, width))
        return tf.reshape(tf.transpose(changes, (0, 2, 1, 3)), matrix.shape)

    def orthogonal(self, matrices: tf.Tensor) -> tf.Tensor:
        """Return matrices (..., rows, columns) with their singular values replaced by about 1.

        An iteration is x = p(x x') x with p(g) = a + b g + c g^2. Multiplying the factors p(x x')
        first takes two thirds of the time if a matrix is four times as long as wide, as in an LSTM.
        """
        n_rows, n_columns = matrices.shape[-2:]
        if n_rows > n_columns:
            return tf.linalg.matrix_transpose(self.orthogonal(tf.linalg.matrix_transpose(matrices)))
        x = matrices / (tf.norm(matrices, axis=(-2, -1), keepdims=True) + 1e-7)
        a, b, c = self.COEFFICIENTS
        gram = tf.matmul(x, x, transpose_b=True)  # ..., rows, rows
        # Added instead of using `set_diag`, which has an argument on the host.
        identity: np.ndarray = np.eye(n_rows, dtype=np.float32)
        product = None
        for _ in range(self.N_ITERATIONS):
            factor = b * gram + c * tf.matmul(gram, gram) + a * identity
            product = factor if product is None else tf.matmul(factor, product)
            gram = tf.matmul(factor, tf.matmul(gram, factor))
        return tf.matmul(product, x)


def _gathered(variable, rows):
    return tf.raw_ops.ResourceGather(resource=variable.handle, indices=rows, dtype=variable.dtype)


# By the names in options. To add an optimizer, add its class here, and its name and default
# learning rate to `LEARNING_RATES` of `options/run_options.py`.
OPTIMIZERS = {"adagrad": Adagrad, "adam": Adam, "muon": Muon}
