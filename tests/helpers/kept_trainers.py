"""Compiled trainers: runs of one process whose steps are the same graph share one.

Compiling takes most of the time of a run of a few steps. Each run starts from the first weights.
"""

import keras
import tensorflow as tf

from bilm.language_model import BiLM
from bilm.layers.functional import compiled
from bilm.training.step import Trainer

KEPT = {}
TRACED = Trainer._gradients, BiLM.build  # tests may replace them
NOT_IN_GRAPH = {"n_epochs": 1, "n_train_tokens": 1, "n_tokens_vocab": None, "once_from": None}


class KeptTrainer:
    """A trainer, and its values before the first step."""

    def __init__(self, *arguments):
        self.trainer = Trainer(*arguments)
        self.graph = self.trainer._step
        self.state = self.trainer.state
        self.variables = [variable.value for variable in self.trainer.model.variables]
        for slot in self.trainer.optimizer.slots.values():
            self.variables += slot.values()
        self.values = [variable.numpy() for variable in self.variables]
        self.evaluation = None  # the compiled method of its `Evaluator`

    def again(self, options, hosts, schedule):
        """The trainer as it was, for another run."""
        for variable, value in zip(self.variables, self.values, strict=True):
            variable.assign(value)
        trainer = self.trainer
        trainer.state, trainer.devices.hosts, trainer.options = self.state, hosts, options
        trainer.schedule = schedule
        trainer.is_compiled = False
        return trainer


def trainer(options, n_tokens, devices, seed, precision, schedule):
    """What `Trainer` returns."""
    arguments = options, n_tokens, devices, seed, precision, schedule
    if devices.several_hosts or (Trainer._gradients, BiLM.build) != TRACED:
        return Trainer(*arguments)
    graph = repr(options.replace(**NOT_IN_GRAPH)), n_tokens, *devices.names, seed, precision
    settings = keras.config.dtype_policy().name, keras.config.floatx(), keras.config.epsilon()
    key = *graph, *settings, str(tf.config.optimizer.get_experimental_options())
    kept = KEPT.get(key)
    if kept is not None and kept.trainer._step is kept.graph:  # it was not compiled again
        return kept.again(options, devices.hosts, schedule)
    KEPT[key] = KeptTrainer(*arguments)
    return KEPT[key].trainer


def compiled_evaluation(window, gradients):
    """What `compiled` returns for the method of an `Evaluator`."""
    for kept in KEPT.values():
        if kept.trainer.model is window.__self__.model:
            kept.evaluation = kept.evaluation or compiled(window, gradients=gradients)
            return kept.evaluation
    return compiled(window, gradients=gradients)
