"""Numbers that are not finite, or that memory has no room for, end a run and spoil nothing."""

import math

import numpy as np
import pytest
import tensorflow as tf
from tiny_runs import assert_same_values, load_run, run

from bilm.errors import NotFiniteError, OutOfMemoryError
from bilm.storage.checkpoint import latest_checkpoint
from bilm.training.run_folder import RunFolder
from bilm.training.step import Trainer

gradients = Trainer._gradients


def values_of(trainer):
    """Weights, accumulators and states of every replica."""
    local = trainer.devices.local
    named = {f"state {i}": array for i, array in enumerate(trainer.global_state())}
    for slot, variables in {"": trainer.optimizer.variables, **trainer.optimizer.slots}.items():
        for name, variable in variables.items():
            for k, part in enumerate(local(variable)):
                named[f"{slot} {name} {k}"] = part.numpy()
    return named


@pytest.mark.parametrize(
    ("what", "n_replicas"),
    [
        ("loss", 2),
        ("gradient's norm", 1),
        pytest.param("loss", 1, marks=pytest.mark.slow),
        pytest.param("gradient's norm", 2, marks=pytest.mark.slow),
    ],
)
def test_not_finite_step_changes_nothing(tmp_path, monkeypatch, what, n_replicas):
    before = {}

    def bad_gradients(self, batch, state, step):
        factor = tf.where(step == 2, math.nan if what == "loss" else math.inf, 1.0)

        def scaled(part):
            return part * factor if part.dtype.is_floating else part  # no indices of rows

        found, losses, state = gradients(self, batch, state, step)
        if what == "loss":
            return found, scaled(losses), state
        return tf.nest.map_structure(scaled, found, expand_composites=True), losses, state

    step = Trainer.step

    def watching(self, iterator, number):
        if number == 2:
            before.update(values_of(self))
            before["trainer"] = self
        return step(self, iterator, number)

    monkeypatch.setattr(Trainer, "_gradients", bad_gradients)
    monkeypatch.setattr(Trainer, "step", watching)
    with pytest.raises(NotFiniteError) as raised:
        run(tmp_path, n_replicas=n_replicas)
    message = str(raised.value)
    assert message.startswith(f"step 3: the {what} is not finite; nothing was updated")
    assert_same_values(values_of(before.pop("trainer")), before)
    assert latest_checkpoint(tmp_path).record.step == 2


@pytest.fixture(params=["weights", "slots"])
def spoiled(request, monkeypatch):
    """Each step leaves a weight or a slot of the optimizer that is not finite."""
    step = Trainer.step

    def spoil(self, iterator, number):
        result = step(self, iterator, number)
        slots = self.optimizer.slots["adagrad"]
        chosen = slots if request.param == "slots" else self.optimizer.variables
        variable = next(iter(chosen.values()))
        variable.assign(variable * np.nan)
        return result

    monkeypatch.setattr(Trainer, "step", spoil)
    return "adagrad/" if request.param == "slots" else ""


def test_not_finite_weights_are_not_saved(a_run, spoiled):
    match = rf"step 4: {spoiled}\S+ is not finite, so nothing was sav"
    with pytest.raises(NotFiniteError, match=match):
        run(a_run, 5)
    assert latest_checkpoint(a_run).record.step == 3
    assert not list(a_run.glob("model.ckpt-[45]*"))


def test_not_finite_checkpoint_is_skipped(a_run, spoiled, monkeypatch, log):
    monkeypatch.setattr("bilm.storage.checkpoint.CheckpointContent.check_finite", lambda *_: None)
    run(a_run, 4)
    assert RunFolder(a_run).latest_checkpoint(whole=True).record.step == 3
    assert spoiled in log.text and "is not finite; trying" in log.text
    load_run(a_run)


def test_out_of_memory_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    def large(self, batch, state, step):
        found, losses, state = gradients(self, batch, state, step)
        size = tf.where(step == 2, tf.constant(1 << 50, tf.int64), 1)
        return found, losses + tf.reduce_sum(tf.fill([size], 0.0)), state

    monkeypatch.setattr(Trainer, "_gradients", large)
    with pytest.raises(OutOfMemoryError) as raised:
        run(tmp_path, 4)
    message = str(raised.value)
    assert message.startswith(f"{tmp_path}: out of memory (") and "\n" not in message
    assert "; reduce batch_size, unroll_steps, n_negative_samples_batch or the" in message
    assert latest_checkpoint(tmp_path).record.step == 2
