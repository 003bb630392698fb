"""What a run goes on from and with, what it refuses, and what it tells of odd requests."""

import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
from tiny_runs import TEXT, WORDS, run, weights_of

from bilm.data.dataset import SHUFFLE_BUFFER
from bilm.errors import BilmError, DataError, OptionsError, WeightsError
from bilm.training import preparation
from bilm.training import run as training
from bilm.training.run import Saving
from bilm.training.saved import find_saved

# --- whether to continue ---


def test_a_run_is_not_continued_against_ones_will(a_run, tmp_path):
    with pytest.raises(BilmError, match=rf"{a_run}: holds a run; give another folder"):
        run(a_run, resume="never")
    assert run(a_run, n_steps=4, resume="must").step == 4
    assert run(tmp_path / "new", n_steps=1, resume="never").step == 1


def test_there_must_be_a_run_to_continue(tmp_path):
    with pytest.raises(BilmError, match=r"run: holds no checkpoint"):
        run(tmp_path / "run", resume="must")
    assert not (tmp_path / "run").exists()
    with pytest.raises(BilmError, match="resume=perhaps: expected one of auto, never, must"):
        run(tmp_path, resume="perhaps")


def test_the_corpus_is_counted_once(a_run, monkeypatch):
    monkeypatch.setattr(preparation, "survey", lambda *_, **__: pytest.fail("counted again"))
    assert run(a_run, n_steps=4).step == 4


def test_another_text_is_refused(a_run, tmp_path):
    text = tmp_path / "a.txt"
    shutil.copy(next(Path(TEXT).parent.iterdir()), text)
    assert run(a_run, 4, text=str(text)).step == 4  # the same, elsewhere
    text.write_bytes(text.read_bytes() + b"the\n")
    with pytest.raises(DataError, match=r"a\.txt: found a\.txt, \d+ bytes, but this folder's run"):
        run(a_run, 5, text=str(text))


def test_other_options_of_training_are_told(a_run, log):
    run(a_run, n_steps=4, changes=WORDS | {"dropout": 0.5})
    assert f"{a_run / 'options.json'}: dropout was 0.1 so far, and is 0.5 from here" in log.text


# --- replicas ---


PLAIN = WORDS | {"bidirectional": True, "dropout": 0.0, "sample_softmax": False}


@pytest.fixture
def losses(monkeypatch):
    """What each step of the runs of a test reports."""
    seen = []
    add = training.RunReport.add

    def adding(self, step, result):
        seen.append(np.array(result.losses))
        add(self, step, result)

    monkeypatch.setattr(training.RunReport, "add", adding)
    return seen


def test_a_run_goes_on_with_another_number_of_replicas(tmp_path, losses, log):
    run(tmp_path / "straight", 6, changes=PLAIN)
    straight = [step.mean(axis=0) for step in losses]
    losses.clear()
    run(tmp_path / "run", 2, changes=PLAIN)
    run(tmp_path / "run", 4, changes=PLAIN, n_replicas=2)
    assert "the run's 2 rows are shared anew: 2 replicas x 1 rows" in log.text
    assert '"batch_size": 1' in (tmp_path / "run" / "options.json").read_text()
    run(tmp_path / "run", 6, changes=PLAIN)
    assert [len(step) for step in losses] == [1, 1, 2, 2, 1, 1]
    for found, expected in zip(losses, straight, strict=True):
        np.testing.assert_allclose(found.mean(axis=0), expected, rtol=1e-5)
    expected = weights_of(tmp_path / "straight")
    for name, value in weights_of(tmp_path / "run").items():
        np.testing.assert_allclose(value, expected[name], atol=1e-5, err_msg=name)


def test_replicas_that_do_not_divide_the_rows_are_refused(tmp_path):
    run(tmp_path, changes=WORDS | {"batch_size": 3})
    with pytest.raises(WeightsError, match="its 3 rows cannot be shared by 2 replicas"):
        run(tmp_path, 5, changes=WORDS | {"batch_size": 3}, n_replicas=2)


# --- seeds, steps and texts ---


@pytest.mark.parametrize("seed", [-1, 2**31, 2**40, 1.5, "1"])
def test_a_seed_out_of_range_is_refused(tmp_path, seed):
    with pytest.raises(OptionsError, match=r"seed: found .*, expected an integer from 0 to 2147"):
        run(tmp_path / "run", 1, seed=seed)
    assert not (tmp_path / "run").exists()


def test_the_largest_seed_trains(tmp_path):
    assert run(tmp_path, 1, seed=2**31 - 1).finished


@pytest.mark.parametrize("n_steps", [0, 2.5, True, 10**30])
def test_steps_that_are_no_count_are_refused(tmp_path, n_steps):
    with pytest.raises(BilmError, match=f"n_steps: found {n_steps}, expected an integer from 1"):
        run(tmp_path, n_steps)


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"keep": 0}, {"steps": 2.5}, {"minutes": -1}, {"minutes": "15"}]
)
def test_a_saving_that_cannot_be_is_refused(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(OptionsError, match=f"Saving: {name} is {value!r}, expected"):
        Saving(**wrong)


def test_a_text_smaller_than_a_window_is_told(tmp_path, log):
    (tmp_path / "text").write_text("the cat\n")
    assert run(tmp_path / "run", 2, text=str(tmp_path / "text")).finished
    assert "the text has 3 predictions and a step takes 10" in log.text


def test_heldout_text_that_is_trained_on_is_told(tmp_path, log):
    link = tmp_path / "link"
    link.symlink_to(next(Path(TEXT).parent.iterdir()))
    run(tmp_path / "run", 1, heldout=str(link))
    assert f"{link}: is trained on too" in log.text


def test_a_vocabulary_without_words_is_refused(tmp_path, monkeypatch):
    (tmp_path / "words").write_text("<S>\n</S>\n<UNK>\n")
    monkeypatch.setattr("tiny_runs.VOCABULARY", tmp_path / "words")
    with pytest.raises(BilmError, match="words: "):
        run(tmp_path / "run", 1)


def test_an_error_in_the_text_loses_no_step(tmp_path):
    # Read ahead as far as lines wait to be drawn, the bad one is met after some steps.
    lines = b"the cat sat\n" * (SHUFFLE_BUFFER + 50)
    (tmp_path / "text").write_bytes(lines + b"bad \xff\n")
    saved = tmp_path / "run"
    changes = WORDS | {"n_train_tokens": 100}
    with (
        pytest.MonkeyPatch.context() as patched,
        pytest.raises(DataError, match="not UTF-8"),
    ):
        patched.setattr("bilm.data.survey.SAMPLE_TOKENS", 50)
        run(saved, 10_000, str(tmp_path / "text"), changes=changes, saving=Saving(10_000))
    assert find_saved(saved).step > 1
