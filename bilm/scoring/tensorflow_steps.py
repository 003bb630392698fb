"""Dynamic evaluation on TensorFlow: scores a window of one direction, then adapts to it."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from bilm.data.windows import distinct_shapes
from bilm.language_model import BiLM
from bilm.scoring.one_direction import flat_state, read_window, with_layers

EPSILON = 1e-8  # added to the root mean square of a gradient


class DynamicDirection:
    """One direction of a language model, with weights of its own that adapt to the text.

    Args:
        model: a built `BiLM` with its softmax; its variables are read and not changed.
        direction: "forward" or "backward".
        rate, decay: see `bilm.scoring.adaptation.Adaptation`.
    """

    def __init__(self, model: BiLM, direction: str, rate: float, decay: float):
        self.model, self.direction, self.rate, self.decay = model, direction, rate, decay
        layers = model.encoder, model.stacks[direction], model.softmax
        found = {id(v): v for layer in layers for v in layer.trainable_variables}
        self.trained = list(found.values())
        self.weights = [tf.Variable(tf.convert_to_tensor(v)) for v in self.trained]
        self.squares = [tf.Variable(tf.zeros_like(v)) for v in self.weights]
        self.n_steps = tf.Variable(0.0)
        signature = [self._batch_spec(), self._state_spec()]
        self._run = tf.function(self._step, signature, autograph=False)

    def __call__(self, batch: dict[str, Any], state: Any) -> Any:
        """Score a window, then adapt to it; see `with_layers`."""
        return with_layers(self._run, batch, self.direction, state)

    def _batch_spec(self):
        shapes, ids = distinct_shapes(self.model.options), tf.TensorSpec((None, None), tf.int32)
        if self.model.options.reads_words:
            distinct = tf.TensorSpec(shapes, tf.int32)
        else:
            distinct = tuple(tf.TensorSpec(shape, tf.int32) for shape in shapes)
        return {"distinct": distinct, "place": ids, "target": ids}

    def _state_spec(self):
        parts = flat_state(self.model, self.direction)
        return [tf.TensorSpec(part.shape, tf.float32) for part in parts]

    def _step(self, batch, state):
        values = [tf.convert_to_tensor(weight) for weight in self.weights]
        with (
            tf.GradientTape() as tape,
            keras.StatelessScope(list(zip(self.trained, values, strict=True))),
        ):
            tape.watch(values)
            losses, hidden, state = read_window(
                self.model, self.direction, batch, state, training=True
            )
            objective = tf.reduce_mean(losses)
        gradients = tape.gradient(objective, values)
        with tf.control_dependencies([losses, hidden]):
            self._update(gradients)
        return losses, hidden, state

    def _update(self, gradients):
        n_steps = self.n_steps.assign_add(1.0)
        rows = zip(self.trained, self.weights, self.squares, gradients, strict=True)
        for trained, weight, square, gradient in rows:
            gradient = tf.convert_to_tensor(gradient)
            mean = square.assign_add((tf.square(gradient) - square) / n_steps)
            change = -self.rate * gradient / (tf.sqrt(mean) + EPSILON)
            if self.decay:
                change += self.decay * (tf.convert_to_tensor(trained) - weight)
            weight.assign_add(change)
