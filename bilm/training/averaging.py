"""The average of a run's weights over its steps: the model that is measured and exported."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bilm.language_model import BiLM
from bilm.storage.names import stored_places, trained_variables
from bilm.training.devices import Devices


class WeightAverage:
    """A copy of a model, whose weights are an average of the model's weights after each step.

    After step t, counted from 1,   a += (1 - d^n) (w - a),   d = min(decay, (t - 1) / (t + 8))

    The update takes place after each of the first `EVERY_STEP` steps (n = 1), and then after every
    `INTERVAL` steps (n = `INTERVAL`). It reads and writes all weights, and whole tables take too
    long to do so in each step. After the first step, a = w. Then the weight of old steps decreases
    with a power of t until d reaches `decay`: first the average covers about the last tenth of the
    steps, and later about the last 1 / (1 - decay) steps.

    Attributes: `model`, the averaged model, with the weights w at first.

    Args:
        model: the model that is trained; create this object in its strategy's scope. Its weights
            may be created without their values (`deferring`).
        decay: from 0 to below 1.
        devices: the replicas.
    References: Polyak and Juditsky 1992; Shamir and Zhang 2013, arXiv:1212.1824 (d at first).
    """

    EVERY_STEP, INTERVAL, POWER = 100, 10, 8

    def __init__(self, model: BiLM, decay: float, devices: Devices):
        self.decay, self.devices = decay, devices
        self.model = BiLM(
            model.options,
            model.n_tokens,
            softmax=True,
            precision=model.precision,
            softmax_of_characters=model.softmax.n_features is not None,
        )
        self._trained, places = trained_variables(model), stored_places(self.model)
        for name, variable in self._trained.items():
            layer, attribute = places[name]
            layer.initial[attribute] = _value_of(variable)
        self.model.build()
        self._averages = trained_variables(self.model)
        self._update = tf.function(self._move, autograph=False)

    def start(self) -> None:
        """Set the average to the present weights of the trained model."""
        for name, average in self._averages.items():
            average.assign(self._trained[name].value)

    def update(self, step: int) -> None:
        """Update the average after `step` steps of the run, if an update is due."""
        if step <= self.EVERY_STEP or step % self.INTERVAL == 0:
            self._update(tf.constant(self.share(step), tf.float32))

    def share(self, step: int) -> float:
        """Return the factor of w - a in the update after `step` steps."""
        n_steps = 1 if step <= self.EVERY_STEP else self.INTERVAL
        return 1 - min(self.decay, (step - 1) / (step + self.POWER)) ** n_steps

    def _move(self, share: Any) -> None:
        """Update one variable after the other, because an update needs a copy of its variable."""
        done: Any = []
        for name, average in self._averages.items():
            with tf.control_dependencies(done):
                done = self.devices.strategy.extended.update(
                    average.value,
                    _move_towards,
                    args=(self._trained[name].value, share),
                    group=False,
                )
                done = list(self.devices.local(done))


def _move_towards(average, weight, share):
    return tf.raw_ops.ResourceApplyGradientDescent(
        var=average.handle, alpha=share, delta=average - weight
    )


def _value_of(variable):
    """Return the function from a shape to an initializer with the value that `variable` has when
    the initializer is called."""
    return lambda shape: lambda shape, dtype=None: tf.convert_to_tensor(variable.value)
