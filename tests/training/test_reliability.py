"""Resuming, invalid arguments, and texts that a run refuses or warns of."""

import errno
import json
import os
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
from tiny_runs import (
    HELDOUT,
    TEXT,
    VOCABULARY,
    WORDS,
    on_cpu,
    run,
    tiny_options,
    train,
    weights_of,
)

from bilm.data.dataset import SHUFFLE_BUFFER
from bilm.data.shards import Shards
from bilm.errors import BilmError, DataError, OptionsError, WeightsError
from bilm.options.run_options import load_run_options
from bilm.storage.checkpoint import latest_checkpoint
from bilm.training import plan
from bilm.training import run as training
from bilm.training.inputs import check_training_text
from bilm.training.run import Saving, TrainingRun
from bilm.training.run_folder import RunFolder

# --- whether to continue ---


def test_resume_never_refuses_a_run(a_run, tmp_path):
    with pytest.raises(BilmError, match=rf"{a_run}: contains a run; use another folder"):
        run(a_run, resume="never")
    assert run(a_run, n_steps=4, resume="must").step == 4
    assert run(tmp_path / "new", n_steps=1, resume="never").step == 1


def test_resume_must_requires_a_run(tmp_path):
    with pytest.raises(BilmError, match=r"run: contains no checkpoint"):
        run(tmp_path / "run", resume="must")
    assert not (tmp_path / "run").exists()
    with pytest.raises(BilmError, match="resume=perhaps: expected one of auto, never, must"):
        run(tmp_path, resume="perhaps")


def test_resume_does_not_count_the_corpus_again(a_run, monkeypatch):
    monkeypatch.setattr(plan, "survey", lambda *_, **__: pytest.fail("counted again"))
    assert run(a_run, n_steps=4).step == 4


def test_resume_with_another_text_is_refused(a_run, tmp_path):
    text = tmp_path / "a.txt"
    shutil.copy(next(Path(TEXT).parent.iterdir()), text)
    assert run(a_run, 4, text=str(text)).step == 4  # the same, elsewhere
    text.write_bytes(text.read_bytes() + b"the\n")
    with pytest.raises(
        DataError, match=r"a\.txt: found a\.txt, \d+ bytes, but the run in this folder"
    ):
        run(a_run, 5, text=str(text))


def test_resume_logs_changed_options(a_run, log):
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


def test_resume_with_another_number_of_replicas(tmp_path, losses, log):
    run(tmp_path / "straight", 6, changes=PLAIN)
    straight = [step.mean(axis=0) for step in losses]
    losses.clear()
    run(tmp_path / "run", 2, changes=PLAIN)
    run(tmp_path / "run", 4, changes=PLAIN, n_replicas=2)
    assert "the run's 2 rows are now shared by 2 replicas x 1 rows" in log.text
    assert '"batch_size": 2' in (tmp_path / "run" / "options.json").read_text()
    run(tmp_path / "run", 6, changes=PLAIN)
    assert [len(step) for step in losses] == [1, 1, 2, 2, 1, 1]
    for found, expected in zip(losses, straight, strict=True):
        np.testing.assert_allclose(found.mean(axis=0), expected, rtol=1e-5)
    expected = weights_of(tmp_path / "straight")
    for name, value in weights_of(tmp_path / "run").items():
        np.testing.assert_allclose(value, expected[name], atol=1e-5, err_msg=name)


def test_resume_without_options_after_a_change_of_replicas(tmp_path):
    """The folder's own options say what was requested, not the rows of a replica."""
    run(tmp_path, 2, changes=WORDS | {"batch_size": 4})
    for n_steps, n_replicas in ((3, 2), (4, 1), (5, 2)):
        options = load_run_options(tmp_path / "options.json")
        assert options.batch_size == 4
        strategy = on_cpu(n_replicas)
        assert train(
            options, VOCABULARY, TEXT, tmp_path, strategy=strategy, n_steps=n_steps
        ).finished


def test_resume_with_options_that_an_earlier_version_overwrote(tmp_path):
    run(tmp_path, 2, changes=WORDS | {"batch_size": 4})
    stored = json.loads((tmp_path / "options.json").read_text())
    (tmp_path / "options.json").write_text(json.dumps(stored | {"batch_size": 2}))
    options = load_run_options(tmp_path / "options.json")
    assert train(options, VOCABULARY, TEXT, tmp_path, strategy=on_cpu(), n_steps=3).finished
    assert load_run_options(tmp_path / "options.json").batch_size == 4


def test_replicas_that_do_not_divide_the_rows_are_refused(tmp_path):
    run(tmp_path, changes=WORDS | {"batch_size": 3})
    with pytest.raises(WeightsError, match="its 3 rows cannot be shared by 2 replicas"):
        run(tmp_path, 5, changes=WORDS | {"batch_size": 3}, n_replicas=2)


# --- seeds, steps and texts ---


@pytest.mark.parametrize("seed", [-1, 2**31, 2**40, 1.5, "1"])
def test_seed_out_of_range_is_refused(tmp_path, seed):
    with pytest.raises(OptionsError, match=r"seed: found .*, expected an integer from 0 to 2147"):
        run(tmp_path / "run", 1, seed=seed)
    assert not (tmp_path / "run").exists()


def test_largest_seed_trains(tmp_path):
    assert run(tmp_path, 1, seed=2**31 - 1).finished


@pytest.mark.parametrize("n_steps", [0, 2.5, True, 10**30])
def test_invalid_number_of_steps_is_refused(tmp_path, n_steps):
    with pytest.raises(BilmError, match=f"n_steps: found {n_steps}, expected an integer from 1"):
        run(tmp_path, n_steps)


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"keep": 0}, {"steps": 2.5}, {"minutes": -1}, {"minutes": "15"}]
)
def test_invalid_saving_is_refused(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(OptionsError, match=f"Saving: {name} is {value!r}, expected"):
        Saving(**wrong)


def test_warning_if_the_text_is_smaller_than_a_step(tmp_path, log):
    (tmp_path / "text").write_text("the cat\n")
    assert run(tmp_path / "run", 2, text=str(tmp_path / "text")).finished
    assert "the text has 3 predictions and a step uses 10" in log.text


def test_warning_if_heldout_text_is_trained_on(tmp_path, log):
    link = tmp_path / "link"
    link.symlink_to(next(Path(TEXT).parent.iterdir()))
    run(tmp_path / "run", 1, heldout=str(link))
    assert f"{link}: also occurs in the training text" in log.text


def test_vocabulary_without_words_is_refused(tmp_path, monkeypatch):
    (tmp_path / "words").write_text("<S>\n</S>\n<UNK>\n")
    monkeypatch.setattr("tiny_runs.VOCABULARY", tmp_path / "words")
    with pytest.raises(BilmError, match="words: "):
        run(tmp_path / "run", 1)


def test_error_in_the_text_saves_the_steps_before(tmp_path):
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
    assert latest_checkpoint(saved).step > 1


def test_text_that_includes_the_vocabulary_is_refused(tmp_path, monkeypatch):
    shutil.copy(next(Path(TEXT).parent.iterdir()), tmp_path / "a.txt")
    shutil.copy(VOCABULARY, tmp_path / "vocab.txt")
    monkeypatch.setattr("tiny_runs.VOCABULARY", tmp_path / "vocab.txt")
    with pytest.raises(DataError, match=r"vocab\.txt: matches the pattern .* is the vocabulary"):
        run(tmp_path / "run", 1, text=str(tmp_path / "*.txt"))
    assert not (tmp_path / "run").exists()


def test_text_that_includes_files_of_the_run(a_run, log):
    """Refused in a new run; a run that has read them before continues with a warning."""
    own = [a_run / "vocab.txt", a_run / "heldout.json", a_run / "export" / "card.md"]
    shards, folder = Shards([str(path) for path in own]), RunFolder(a_run)
    check_training_text(shards, None, VOCABULARY, folder)
    assert log.text.count("is a file of the run") == len(own)
    for path in a_run.glob("model.ckpt*"):
        path.unlink()
    (a_run / "checkpoint").unlink()
    for path in own:
        with pytest.raises(DataError, match=f"{path}: matches the pattern of the training text"):
            check_training_text(Shards([str(path)]), None, VOCABULARY, folder)
    check_training_text(Shards([str(a_run / "a.txt")]), None, VOCABULARY, folder)


@pytest.mark.parametrize("saving", [Saving(steps=2), Saving(steps=100)], ids=["save", "epoch"])
def test_text_that_changes_during_training_is_refused(tmp_path, monkeypatch, saving):
    text = tmp_path / "a.txt"
    shutil.copy(next(Path(TEXT).parent.iterdir()), text)
    step = training.Trainer.step

    def changing(self, iterator, number):
        if number == 1:
            text.write_bytes(text.read_bytes() + b"the\n")
        return step(self, iterator, number)

    monkeypatch.setattr(training.Trainer, "step", changing)
    changes = WORDS | {"n_train_tokens": 20, "n_epochs": 9}  # epochs of two steps
    with pytest.raises(DataError, match=r"a\.txt: has changed during training: found .* step 2"):
        run(tmp_path / "run", 9, text=str(text), saving=saving, changes=changes)
    assert not RunFolder(tmp_path / "run").holds_run


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP])
def test_training_on_a_file_system_without_locks_warns(tmp_path, monkeypatch, log, number):
    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)
    assert run(tmp_path / "run", 2).finished
    assert f"{tmp_path / 'run'}: this file system has no locks" in log.text


def test_integers_of_numpy_and_long_evaluation_intervals(tmp_path):
    saving = Saving(np.int64(2), np.float32(15), np.int32(3))
    json.dumps([saving.steps, saving.minutes, saving.keep])
    assert run(tmp_path, np.int64(2), heldout=HELDOUT, eval_steps=2**40, saving=saving).finished


def test_relative_folder_and_a_change_of_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    made = TrainingRun(tiny_options(**WORDS), VOCABULARY, TEXT, "run", strategy=on_cpu(), n_steps=1)
    monkeypatch.chdir(tmp_path / "other")
    assert made.train().finished
    assert (tmp_path / "run" / "model.ckpt-1.index").exists() and not os.listdir(".")
