"""One training step over all replicas: forward, backward, mean, clip, update."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bilm.errors import NotFiniteError
from bilm.language_model import BiLM
from bilm.layers.functional import fold_seed
from bilm.layers.regularization import DropoutSeeds, Regularization
from bilm.layers.state import LSTMState
from bilm.options.run_options import RunOptions
from bilm.storage.names import stored_variables
from bilm.training.devices import Devices
from bilm.training.optimizer import NORM, OPTIMIZERS
from bilm.training.sampling import log_uniform_probability
from bilm.training.schedule import Schedule

LOSS = "loss"  # name of the checked value, which the error message contains
# Keys of the random numbers, one per purpose; runs that resume depend on them.
DROPOUT, RESETS, EMBEDDING_DROPOUT = range(3)


class StepResult(NamedTuple):
    """Result of a step: float32 tensors.

    Fields:
        losses: (replicas, directions), mean cross-entropy of a prediction in nats.
        global_norm: (), global norm, before clipping, of the mean gradient over replicas; the
            differentiated loss is multiplied by the number of steps of the window.
        learning_rate: learning rate of the step, a Python float.
    """

    losses: tf.Tensor
    global_norm: tf.Tensor
    learning_rate: float


class Trainer:
    """A biLM, its optimizer and the LSTM state of every row, on every replica.

    Args:
        options: options of the run; the batch size is per replica.
        n_tokens: vocabulary size.
        devices: the replicas to train on.
        seed: seed of dropout and resets, combined with step, replica, direction and layer. The
            initial weights depend on Keras' global seed instead.
        precision: dtype of matrix-multiplication inputs, see `BiLM`.
        n_steps: length of the run; required only if the learning rate decays.
    """

    def __init__(
        self,
        options: RunOptions,
        n_tokens: int,
        devices: Devices,
        seed: int = 0,
        precision: str = "float32",
        n_steps: int | None = None,
    ):
        self.options, self.devices, self.seed = options, devices, seed
        self.schedule = Schedule(options, n_steps)
        with devices.strategy.scope():
            self.model = BiLM(
                options.model,
                n_tokens,
                softmax=True,
                regularization=Regularization.of(options),
                precision=precision,
            )
            if options.softmax_bias == "log_uniform" and self.model.softmax is not None:
                biases = np.log(log_uniform_probability(np.arange(n_tokens), n_tokens))
                self.model.softmax.initial["bias"] = keras.initializers.Constant(biases)
            self.model.build()
            variables: dict[str, Any] = {**stored_variables(self.model)}
            self.optimizer = OPTIMIZERS[options.optimizer](
                {name: variable.value for name, variable in variables.items()},
                self.schedule,
                options.all_clip_norm_val,
                devices,
            )
        self.state = self._on_replicas(lambda: self.model.zero_state(options.batch_size))
        self._step: Any = tf.function(self._take_step, autograph=False, reduce_retracing=True)

    def expect(self, batch_spec: Any) -> None:
        """Compile the step once for all batches of a specification. Call this if batches are passed
        to `step` directly; without it, each new batch size would trace the step again.

        Args:
            batch_spec: the `element_spec` of an iterator over distributed batches.
        """
        state = tf.nest.map_structure(tf.type_spec_from_value, self.state)
        sizes = [tf.TensorSpec(np.shape(self.optimizer.step_size(0)), tf.float32)]
        if self.options.weight_decay:
            sizes.append(tf.TensorSpec((), tf.float32))
        numbers = tf.TensorSpec((), tf.int32), *sizes
        signature = batch_spec, state, *numbers
        self._step = tf.function(self._take_step, autograph=False, input_signature=signature)

    def step(self, source: Any, step: int) -> StepResult:
        """Train on one batch per replica, starting from the state after the previous step.

        Args:
            source: an iterator over distributed batches, or with several hosts the batch itself.
            step: the number of the step, from 0.
        Raises: NotFiniteError if a loss or the gradient's norm is not finite; weights, slots and
            state are then unchanged.
        """
        try:
            number = tf.constant(step, tf.int32)
            sizes = [tf.constant(self.optimizer.step_size(step), tf.float32)]
            if self.options.weight_decay:
                decay = self.optimizer.rate(step) * self.options.weight_decay
                sizes.append(tf.constant(decay, tf.float32))
            losses, norm, self.state = self._step(source, self.state, number, *sizes)
        except tf.errors.InvalidArgumentError as error:
            for what in (LOSS, NORM):
                if f"{what} : Tensor had" in error.message:
                    raise NotFiniteError(f"the {what} is not finite") from None
            raise
        return StepResult(losses, norm, self.optimizer.rate(step))

    def global_state(self) -> list[np.ndarray]:
        """Return the state of all rows: float32 arrays (global batch, width), in the order of
        `BiLM.flatten_state`."""
        parts = self.model.flatten_state(self.state)
        if self.devices.several_hosts:
            return [tensor.numpy() for tensor in self._gathered(parts)]
        return [
            np.concatenate([tensor.numpy() for tensor in self.devices.local(part)])
            for part in parts
        ]

    def set_state(self, arrays: list[np.ndarray]) -> None:
        """Set the state of all rows, in the order of `BiLM.flatten_state`."""
        n_rows = self.options.batch_size

        def own_rows():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            rows = [tf.constant(a)[replica * n_rows : (replica + 1) * n_rows] for a in arrays]
            return self.model.pack_state(rows)

        self.state = self._on_replicas(own_rows)

    def _on_replicas(self, make):
        return self.devices.strategy.run(tf.function(make, autograph=False))

    @tf.function(autograph=False)
    def _gathered(self, parts):
        return [self.devices.gathered(part) for part in parts]

    def _take_step(self, source, state, step, step_size, decay=None):
        run = self.devices.strategy.run
        batch = source if self.devices.several_hosts else next(source)
        gradients, losses, state = run(self._gradients, args=(batch, state, step))
        losses = self.devices.gathered(losses)
        with tf.control_dependencies([tf.debugging.check_numerics(losses, LOSS)]):
            norm = self.optimizer.apply(gradients, step_size, decay)
        return losses, norm, state

    def _gradients(self, batch, state, step):
        """Return a replica's gradients, losses (1, directions) and next state."""
        variables = [v.value for v in stored_variables(self.model).values()]
        state = self._reset_rows(state, step)
        with tf.GradientTape() as tape:
            losses, state = self.forward(batch, state, self.dropout_seeds(step))
            # As in the reference, the loss is summed over the steps of a window.
            n_steps = batch["targets"][self.model.directions[0]].shape[1]
            objective = tf.reduce_mean(losses) * n_steps
        return tape.gradient(objective, variables), losses[None], state

    def forward(self, batch: Any, state: Any, seeds: DropoutSeeds) -> Any:
        """Return a replica's losses (directions,), means over its predictions, and next state."""
        model, vectors = self.model, self.model.encode(batch, seeds)
        outputs, state = model.windows(vectors, state, dropout_seeds=seeds.layers, training=True)
        losses = model.losses(outputs, batch["targets"], batch.get("negatives"))
        return tf.stack([tf.reduce_mean(losses[d]) for d in model.directions]), state

    def _reset_rows(self, state, step):
        """Reset each row of each direction with the probability in the options."""
        probability = self.options.state_reset_probability
        if not probability:
            return state
        seeds, rows = self._seeds(step, RESETS), (self.options.batch_size, 1)
        kept = {d: tf.random.stateless_uniform(rows, seeds[d]) >= probability for d in state}
        return {
            d: [LSTMState(*(tf.where(kept[d], part, 0.0) for part in layer)) for layer in state[d]]
            for d in state
        }

    def dropout_seeds(self, step: Any) -> DropoutSeeds:
        """Return the seeds of a step for this replica."""
        layers, tokens = self._seeds(step, DROPOUT), self._seeds(step, EMBEDDING_DROPOUT)
        return DropoutSeeds(
            layers=layers if self.options.dropout else None,
            tokens=tokens[self.model.directions[0]] if self.options.embedding_dropout else None,
        )

    def _seeds(self, step: Any, purpose: int) -> Any:
        """Return a seed (2,) for each direction, by run, step, replica and purpose."""
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        seed = fold_seed(fold_seed(tf.stack([self.seed, step]), replica), purpose)
        return {d: fold_seed(seed, k) for k, d in enumerate(self.model.directions)}
