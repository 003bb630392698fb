"""The learning rate of each step: its values, and what a run says and keeps of it."""

import json

import numpy as np
import pytest
import tensorflow as tf
from tiny_runs import TEXT, WORDS, assert_same_values, run, tiny_options

from bilm.errors import OptionsError
from bilm.training.finetuning import Source, finetune
from bilm.training.history import read_history
from bilm.training.schedule import Schedule
from bilm.training.step import Trainer

ADAM = {"optimizer": "adam", "learning_rate": 0.01}
MUON = {"optimizer": "muon", "learning_rate": 0.01}
DECAYING = {"warmup_steps": 2, "decay": "linear", "decay_start": 0.5}


def rates(n_steps, **changes):
    schedule = Schedule(tiny_options(learning_rate=1.0, **changes), n_steps)
    return [schedule(step) for step in range(n_steps)]


def every_number(folder, step):
    """Every number of a checkpoint by name, without TensorFlow's own objects."""
    reader = tf.train.load_checkpoint(str(folder / f"model.ckpt-{step}"))
    names = [n for n in reader.get_variable_to_shape_map() if "OBJECT_GRAPH" not in n]
    return {name: reader.get_tensor(name) for name in names}


def test_learning_rate_is_constant_by_default():
    assert rates(3) == [1, 1, 1]
    assert Schedule(tiny_options())(10**9) == 0.2


def test_warm_up_rises_to_the_full_rate():
    np.testing.assert_allclose(rates(6, warmup_steps=4), [0.25, 0.5, 0.75, 1, 1, 1])


def test_limited_warm_up_takes_a_fifth_of_the_run():
    options = tiny_options(learning_rate=1.0, warmup_steps=4)
    schedule = Schedule(options, 10, limits_warmup=True)
    assert [schedule(step) for step in range(3)] == [0.5, 1, 1]
    schedule = Schedule(options, 100, limits_warmup=True)
    assert [schedule(step) for step in range(5)] == [0.25, 0.5, 0.75, 1, 1]


def test_linear_decay_starts_after_its_share_and_ends_at_its_floor():
    found = rates(10, decay="linear", decay_start=0.5)
    np.testing.assert_allclose(found, [1, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2])
    found = rates(4, decay="linear", decay_floor=0.2)
    np.testing.assert_allclose(found, [1, 0.8, 0.6, 0.4])


def test_cosine_decay_is_half_a_wave():
    found = rates(6, decay="cosine", decay_floor=0.5)
    np.testing.assert_allclose(found, 0.75 + 0.25 * np.cos(np.pi * np.arange(6) / 6))


@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_decay_waits_for_the_warm_up_and_never_reaches_zero(decay):
    found = rates(8, warmup_steps=4, decay=decay)
    assert found[:5] == [0.25, 0.5, 0.75, 1, 1]
    assert min(found[5:]) > 0 and found[4:] == sorted(found[4:], reverse=True)
    assert rates(3, warmup_steps=9, decay=decay) == pytest.approx([1 / 9, 2 / 9, 3 / 9])
    assert rates(3, decay_start=1.0, decay=decay) == [1, 1, 1]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(ADAM, id="adam, characters", marks=pytest.mark.slow),
        pytest.param(WORDS | ADAM, id="adam, words", marks=pytest.mark.slow),
        pytest.param(MUON, id="muon, characters", marks=pytest.mark.slow),
        pytest.param(WORDS | MUON, id="muon, words"),  # Adam updates its tables
    ],
)
def test_resume_is_bit_identical(tmp_path, monkeypatch, changes):
    """Stopped at every step of warm-up and decay, the last two times between saves."""
    changes = changes | DECAYING | {"state_reset_probability": 0.2}
    run(tmp_path / "straight", 6, changes=changes)
    step = Trainer.step
    for end in (1, 2, 3, 5, 6):

        def step_to(self, iterator, number, end=end):
            if number == end:
                raise KeyboardInterrupt
            return step(self, iterator, number)

        monkeypatch.setattr(Trainer, "step", step_to)
        arguments = {"changes": changes, "checkpoint_steps": 1 if end < 3 else 2}
        if end < 6:
            with pytest.raises(KeyboardInterrupt):
                run(tmp_path / "run", 6, **arguments)
        else:
            assert run(tmp_path / "run", 6, **arguments).finished
    assert_same_values(*(every_number(tmp_path / name, 6) for name in ("run", "straight")))


def test_resume_with_another_optimizer_is_refused(a_run):
    path = a_run / "options.json"
    with pytest.raises(OptionsError, match="optimizer is adagrad in this folder's run, but adam"):
        run(a_run, 4, changes=WORDS | ADAM)
    values = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in values.items() if k != "optimizer"}))
    with pytest.raises(OptionsError, match="optimizer is adagrad in this folder's run, but adam"):
        run(a_run, 4, changes=WORDS | ADAM)
    assert run(a_run, 4).finished


def test_learning_rate_is_logged_and_in_the_history(tmp_path, log):
    run(tmp_path, 4, changes=WORDS | {"warmup_steps": 4, "learning_rate": 1.0}, log_steps=1)
    assert [f"learning rate {k}\n" in log.text for k in (0.5, 0.75, 1)] == [True] * 3
    rows = read_history(tmp_path / "history.csv")
    rates = {int(row["step"]): float(row["learning_rate"]) for row in rows}
    assert rates == {1: 0.25, 2: 0.5, 3: 0.75, 4: 1.0}


def test_finetune_inherits_the_optimizer_with_new_slots(tmp_path):
    run(tmp_path / "source", 2, changes=WORDS | ADAM | DECAYING | {"warmup_steps": 201})
    finetune(tmp_path / "source", TEXT, tmp_path / "tuned", n_steps=1)
    options = json.loads((tmp_path / "tuned" / "options.json").read_text())
    kept = "adam", 0.01, 21, "linear", 0.5  # a tenth of the warm-up
    names = "optimizer", "learning_rate", *DECAYING
    assert tuple(options[name] for name in names) == kept
    other = Source(tmp_path / "source").run_options({"optimizer": "adagrad"})
    assert (other.optimizer, other.learning_rate) == ("adagrad", 0.2)
    again = Source(tmp_path / "tuned").run_options({})
    assert again.warmup_steps == 15  # what was tuned is tuned again with no shorter one
    # After one step the mean of the gradients is a tenth of a gradient of norm 10 or less.
    slots = every_number(tmp_path / "tuned", 1)
    norm = sum(float((v**2).sum()) for k, v in slots.items() if k.startswith("adam_mean")) ** 0.5
    assert 0 < norm <= 1 + 1e-5
