"""One training step over all replicas: forward, backward, mean, clip, update."""

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bilm.errors import NotFiniteError
from bilm.language_model import BiLM
from bilm.layers.functional import fold_seed
from bilm.layers.stack import DropoutSeeds, Regularization
from bilm.options.run_options import RunOptions
from bilm.training.devices import Batches, Devices
from bilm.training.optimizer import NORM, OPTIMIZERS
from bilm.training.sampling import log_uniform_probability
from bilm.training.schedule import Schedule
from bilm.training.training_text import batch_signature

LOSS = "loss"  # name of the checked value, which the error message contains
# Keys of the random numbers, one per purpose; runs that resume depend on them.
DROPOUT, RESETS, EMBEDDING_DROPOUT = range(3)


class StepResult(NamedTuple):
    """Result of a step."""

    losses: tf.Tensor  # float32 (replicas, directions), mean cross-entropy of a prediction in nats
    # Before clipping, of the mean gradient over replicas: float32 (). The differentiated loss is
    # multiplied by the number of steps of the window.
    global_norm: tf.Tensor
    learning_rate: float


class Trainer:
    """A biLM, its optimizer and the LSTM state of every row, on every replica.

    Args:
        options: of the run, with the batch size of a replica; `n_tokens`: vocabulary size.
        seed: of dropout and resets, combined with step, replica, direction and layer. The initial
            weights depend on Keras' global seed instead.
        precision: dtype of matrix-multiplication inputs, see `BiLM`.
        schedule: learning rate of each step; None for the options' rate, which must not decay.
    """

    def __init__(
        self,
        options: RunOptions,
        n_tokens: int,
        devices: Devices,
        seed: int = 0,
        precision: str = "float32",
        schedule: Schedule | None = None,
    ):
        self.options = options
        self.devices = devices
        self.seed = seed
        self.schedule = schedule or Schedule(options)
        with devices.strategy.scope():
            self.model = BiLM(
                options.model,
                n_tokens,
                softmax=True,
                regularization=_regularization(options),
                precision=precision,
            )
            if options.softmax_bias == "log_uniform" and self.model.softmax is not None:
                biases = np.log(log_uniform_probability(np.arange(n_tokens), n_tokens))
                self.model.softmax.initial["bias"] = keras.initializers.Constant(biases)
            self.model.build()
            variables = self.model.stored_variables()
            self.optimizer = OPTIMIZERS[options.optimizer](
                {name: variable.value for name, variable in variables.items()},
                options.all_clip_norm_val,
                devices,
            )
        self.state = self._on_replicas(lambda: self.model.zero_state(options.batch_size))
        self._renew_graph()

    def change(self, options: RunOptions, schedule: Schedule) -> None:
        """Continue with another schedule and regularization; if this differs, compile again."""
        self.schedule = schedule
        regularization = _regularization(options)
        old = self.model.regularization, self.options.weight_decay > 0
        self.options = options
        if old == (regularization, options.weight_decay > 0):
            return
        self.model.regularization = regularization
        for stack in self.model.stacks.values():
            stack.regularization = regularization
        self._renew_graph()

    def _renew_graph(self) -> None:
        """Make `_take_step` a graph for batches of any number of distinct tokens."""
        batches = (batch_signature(self.options),) * len(self.devices.own)
        others = [self.state, *self._numbers(0)]
        signature = [batches, *tf.nest.map_structure(tf.type_spec_from_value, others)]
        self._step = tf.function(self._take_step, autograph=False, input_signature=signature)
        self.is_compiled = False  # whether the next step does not compile the graph

    def step(self, batches: Batches, step: int) -> StepResult:
        """Train on one batch per replica, from `Devices.place`. Raises: NotFiniteError if a loss or
        the gradient's norm is not finite; weights, slots and state are then unchanged."""
        try:
            losses, norm, self.state = self._step(batches, self.state, *self._numbers(step))
        except tf.errors.InvalidArgumentError as error:
            for name in (LOSS, NORM):
                if f"{name} : Tensor had" in error.message:
                    raise NotFiniteError(
                        f"step {step + 1}: the {name} is not finite; nothing was updated, and the "
                        "last checkpoint remains"
                    ) from None
            raise
        self.is_compiled = True
        return StepResult(losses, norm, self.schedule(step))

    def _numbers(self, step: int) -> list[tf.Tensor]:
        """Return the number of a step, and the factors of its update and of its decay."""
        rate = self.schedule(step)
        return [
            tf.constant(step, tf.int32),
            tf.constant(self.optimizer.step_size(step, rate), tf.float32),
            tf.constant(rate * self.options.weight_decay, tf.float32),
        ]

    def global_state(self) -> list[np.ndarray]:
        """Return the state of all rows, float32 (rows, width)."""
        return [tensor.numpy() for tensor in self._gathered(self.state)]

    def set_state(self, arrays: list[np.ndarray]) -> None:
        """Set the state of all rows from the result of `global_state`."""
        n_rows = self.options.batch_size

        def of_replica():
            first = tf.distribute.get_replica_context().replica_id_in_sync_group * n_rows
            return [tf.constant(array)[first : first + n_rows] for array in arrays]

        self.state = self._on_replicas(of_replica)

    def _on_replicas(self, make):
        return self.devices.strategy.run(tf.function(make, autograph=False))

    @tf.function(autograph=False)
    def _gathered(self, tensors):
        return [self.devices.gathered(tensor) for tensor in tensors]

    def _take_step(self, batches, state, step, step_size, decay):
        """Return the losses (replicas, directions), the gradient's norm and the next state."""
        run = self.devices.strategy.run
        batch = self.devices.distributed(batches)
        gradients, losses, state = run(self._gradients, args=(batch, state, step))
        losses = self.devices.gathered(losses)
        with tf.control_dependencies([tf.debugging.check_numerics(losses, LOSS)]):
            has_decay = self.options.weight_decay > 0
            norm = self.optimizer.apply(gradients, step_size, decay if has_decay else None)
        return losses, norm, state

    def _gradients(self, batch, state, step):
        """Return a replica's gradients, losses (1, directions) and next state."""
        model = self.model
        variables = [v.value for v in model.stored_variables().values()]
        state = self._reset_rows(state, step)
        seeds = self.dropout_seeds(step)
        targets = batch["targets"]
        with tf.GradientTape() as tape:
            vectors = model.encode(batch, seeds)
            outputs, state = model.windows(
                vectors, state, dropout_seeds=seeds.layers, training=True
            )
            losses = model.losses(outputs, targets, batch.get("negatives"))
            means = tf.stack([tf.reduce_mean(losses[d]) for d in model.directions])
            # As in the reference, the loss is summed over the steps of a window.
            objective = tf.reduce_mean(means) * targets[model.directions[0]].shape[1]
        return tape.gradient(objective, variables), means[None], state

    def _reset_rows(self, state, step):
        """Reset each row of each direction with the probability in the options."""
        probability = self.options.state_reset_probability
        if not probability:
            return state
        seeds = self._seeds(step, RESETS)
        n_tensors = len(state) // len(seeds)  # of a direction
        new = []
        for k, seed in enumerate(seeds.values()):
            drawn = tf.random.stateless_uniform((self.options.batch_size, 1), seed)
            is_kept = drawn >= probability  # B, 1
            layers = state[k * n_tensors : (k + 1) * n_tensors]
            new += [tf.where(is_kept, tensor, 0.0) for tensor in layers]
        return new

    def dropout_seeds(self, step: Any) -> DropoutSeeds:
        """Return the seeds of a step for this replica."""
        layers = self._seeds(step, DROPOUT)
        tokens = self._seeds(step, EMBEDDING_DROPOUT)
        return DropoutSeeds(
            layers=layers if self.options.dropout else None,
            tokens=tokens[self.model.directions[0]] if self.options.embedding_dropout else None,
        )

    def _seeds(self, step: Any, purpose: int) -> Any:
        """Return a seed (2,) for each direction, by run, step, replica and purpose."""
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        seed = fold_seed(fold_seed(tf.stack([self.seed, step]), replica), purpose)
        return {d: fold_seed(seed, k) for k, d in enumerate(self.model.directions)}


def _regularization(options: RunOptions) -> Regularization:
    return Regularization(options.dropout, options.variational_dropout, options.embedding_dropout)
