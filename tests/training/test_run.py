"""A run from start to end: devices, plan, what it leaves in its folder, stopping and continuing."""

import gzip
import json
import shutil
import signal
import time
from pathlib import Path

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
import tensorflow as tf
from tiny_runs import (
    HELDOUT,
    TEXT,
    VARIANTS,
    VOCABULARY,
    WORDS,
    before_last_save,
    load_run,
    on_cpu,
    run,
    tiny_options,
    tiny_run,
    tiny_train,
    train,
    weights_of,
)
from tiny_runs import OPTIONS as TINY

from bilm.errors import BilmError, DataError, OptionsError, WeightsError
from bilm.options.run_options import RunOptions
from bilm.scoring.perplexity import Perplexity
from bilm.storage.names import stored_values
from bilm.training import run as training
from bilm.training.devices import make_strategy
from bilm.training.run import Saving, TrainingRun
from bilm.training.step import Trainer

N_PREDICTIONS = 358  # of the training text: its words and the ends of its sentences


# --- devices ---


@pytest.mark.parametrize("arguments", [{"gpus": [99]}, {"gpus": [-1]}, {"n_gpus": 99}])
def test_missing_gpus_are_refused(arguments):
    with pytest.raises(BilmError, match=r"GPU -?\d+ was requested, but TensorFlow finds"):
        make_strategy(**arguments)


def test_cpu_replicas():
    assert make_strategy(n_gpus=0).num_replicas_in_sync == 1
    assert make_strategy(n_gpus=0, cpu_replicas=2).num_replicas_in_sync == 2


def test_cpu_replicas_after_tensorflow_has_started():
    n_there = len(tf.config.list_logical_devices("CPU"))
    with pytest.raises(BilmError, match=f"has started with {n_there}"):
        make_strategy(n_gpus=0, cpu_replicas=n_there + 1)


# --- the run ---


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_train(variant):
    folder = tiny_run(variant)
    values = stored_values(load_run(folder))
    assert all(np.isfinite(value).all() for value in values.values())
    options = tiny_options(**VARIANTS[variant])
    assert ("char_embed" in values) == (options.char_cnn is not None)
    assert ("softmax/W" in values) != options.share_embedding_softmax
    assert any("RNN_1" in name for name in values) == options.bidirectional


def test_files_of_a_run():
    folder = tiny_run("characters")
    options = json.loads((folder / "options.json").read_text())
    assert options["n_train_tokens"] == N_PREDICTIONS
    assert options["n_tokens_vocab"] == len(VOCABULARY.read_text().splitlines())
    assert options["char_cnn"]["n_characters"] == 261
    assert (folder / "vocab.txt").read_bytes() == VOCABULARY.read_bytes()
    assert (folder / "model.ckpt-2.index").exists()


def test_tensorboard_scalars(tmp_path):
    tiny_train(tmp_path, n_steps=1, heldout=HELDOUT, char_cnn=None)
    (path,) = (tmp_path / "logs").glob("events.*")
    records = tf.data.TFRecordDataset([str(path)]).as_numpy_iterator()
    values = [v for r in records for v in tf.compat.v1.Event.FromString(r).summary.value]
    assert {value.tag for value in values} == {
        "train/sampled_loss_forward",
        "train/sampled_loss_backward",
        "train/global_norm",
        "train/learning_rate",
        "train/tokens_per_s",
        "heldout/perplexity_forward",
        "heldout/perplexity_backward",
        "heldout/perplexity",
    }
    # What TensorBoard's `EventAccumulator.Scalars` reads.
    assert all(value.HasField("simple_value") for value in values)


def test_number_of_steps_from_epochs(tmp_path, log):
    changes = {**WORDS, "n_train_tokens": 25, "n_epochs": 3}
    result = tiny_train(tmp_path, n_steps=None, heldout=HELDOUT, **changes)
    assert result.step == 6  # two full windows of 10 an epoch
    assert log.text.count("held-out perplexity") == 3
    assert json.loads((tmp_path / "options.json").read_text())["n_train_tokens"] == 25


def test_resume_with_two_replicas_is_bit_identical(tmp_path):
    """Two replicas; each gets its own rows' states back after a kill."""
    epoch = {"n_steps": None, "changes": WORDS | {"n_train_tokens": 40, "n_epochs": 1}}
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    assert run(straight, **epoch, n_replicas=2).step == 2
    before_last_save(straight, 2, killed)
    assert run(killed, **epoch, n_replicas=2).step == 2
    assert_same_weights(straight, killed)


@pytest.mark.parametrize("variant", ["forward_only", "shared_softmax"])
def test_shared_negatives_make_replicas_equal_one_of_all_rows(tmp_path, variant):
    changes = VARIANTS[variant] | {"dropout": 0.0, "share_negatives": True}
    for n_replicas in (1, 2):
        rows = changes | {"batch_size": 4 // n_replicas}
        run(tmp_path / str(n_replicas), 3, n_replicas=n_replicas, changes=rows)
    one, two = (weights_of(tmp_path / name) for name in "12")
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, rtol=0, atol=1e-6, err_msg=name)


def test_sampled_loss_falls(tmp_path, log):
    changes = {**WORDS, "dropout": 0.0}
    result = tiny_train(tmp_path, n_steps=300, heldout=TEXT, n_epochs=1, **changes)
    losses = [
        float(message.split("sampled loss forward ")[1].split()[0])
        for message in log.messages
        if "sampled loss" in message
    ]
    assert losses[-1] < losses[0] - 0.3
    assert result.heldout.mean < 40  # of 49 words


def test_small_vocabulary_uses_the_full_softmax(tmp_path, log):
    changes = {**WORDS, "n_negative_samples_batch": 49}
    tiny_train(tmp_path, n_steps=1, **changes)
    assert "49 negatives are not below the vocabulary's 49 words: the full softmax" in log.text
    assert "full-softmax loss forward" in log.text
    # The requested value is stored: fine-tuning with more words samples again.
    assert json.loads((tmp_path / "options.json").read_text())["sample_softmax"] is True


def test_gzip_shards(tmp_path):
    folders = tmp_path / "plain", tmp_path / "gzip"
    (text,) = Path(TEXT).parent.iterdir()
    (tmp_path / "a.gz").write_bytes(gzip.compress(text.read_bytes()))
    changes = WORDS
    tiny_train(folders[0], text=str(text), **changes)
    tiny_train(folders[1], text=str(tmp_path / "*.gz"), **changes)
    assert_same_weights(*folders)


# --- stopping and continuing ---


def assert_same_weights(first, second):
    first, second = stored_values(load_run(first)), stored_values(load_run(second))
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value, err_msg=name)


def test_resume_is_bit_identical(tmp_path, log):
    run(tmp_path / "straight", 6, changes={}, saving=Saving(steps=3))
    before_last_save(tmp_path / "straight", 6, tmp_path / "killed")
    result = run(tmp_path / "killed", 6, changes={})
    assert (result.step, result.finished) == (6, True)
    assert "continuing at step 3 of 6" in log.text
    assert_same_weights(tmp_path / "straight", tmp_path / "killed")


def test_signal_saves(tmp_path, monkeypatch, log):
    step = Trainer.step

    def step_and_signal(self, iterator, number):
        if number == 3:
            signal.raise_signal(signal.SIGINT)
        return step(self, iterator, number)

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Trainer, "step", step_and_signal)
    result = tiny_train(tmp_path, n_steps=6, **WORDS)
    assert (result.step, result.finished) == (4, False)
    assert "stopped at step 4, saved" in log.text
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert (tmp_path / "model.ckpt-4.index").exists()


def test_signal_while_evaluating_loses_nothing(tmp_path, monkeypatch):
    def evaluate(*_):
        signal.raise_signal(signal.SIGTERM)
        return Perplexity({"forward": 9.0}, 9.0, 10)

    monkeypatch.setattr(training.Evaluator, "__call__", evaluate)
    options = tiny_options(**WORDS)
    result = train(
        options, str(VOCABULARY), TEXT, str(tmp_path), HELDOUT, make_strategy(n_gpus=0), 6, 2
    )
    assert (result.step, result.finished) == (2, False)
    assert (tmp_path / "model.ckpt-2.index").exists()


def test_second_signal_interrupts_evaluation(tmp_path, monkeypatch):
    def evaluate(*_):
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.01)  # two that wait for the interpreter at once are one

    monkeypatch.setattr(training.Evaluator, "__call__", evaluate)
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path, heldout=HELDOUT, **WORDS)
    assert (tmp_path / "model.ckpt-2.index").exists()


def test_finished_run_ends_at_once(tmp_path, log):
    result = tiny_train(shutil.copytree(tiny_run("characters"), tmp_path / "run"))
    assert (result.step, result.finished, result.heldout) == (2, True, None)
    assert "finished at step 2" in log.text


# --- what a folder refuses ---


def test_resume_with_another_model_is_refused():
    folder = tiny_run("characters")
    with pytest.raises(OptionsError, match=r"lstm\.dim is 8 in this folder's run, but 16 was"):
        tiny_train(folder, lstm={"dim": 16})
    with pytest.raises(OptionsError, match="bidirectional is True"):
        tiny_train(folder, bidirectional=False)


def test_resume_with_another_vocabulary_is_refused(tmp_path):
    words = VOCABULARY.read_text().splitlines()
    (tmp_path / "vocab.txt").write_text("\n".join([*words[:-2], words[-1], words[-2]]))
    with pytest.raises(DataError, match="has another vocabulary than"):
        train(tiny_options(), str(tmp_path / "vocab.txt"), TEXT, str(tiny_run("characters")))


def test_resume_with_another_batch_size_is_refused(a_run):
    with pytest.raises(WeightsError, match="saved with 2 rows, but this run has 3"):
        tiny_train(a_run, n_steps=4, batch_size=3, **WORDS)


def test_blank_text(tmp_path):
    (tmp_path / "blank.txt").write_text("\n \n")
    with pytest.raises(DataError, match=r"blank\.txt: no sentence"):
        tiny_train(tmp_path / "run", text=str(tmp_path / "blank.txt"))


def test_bad_text_is_named_during_training(tmp_path):
    """The text is then read by the pipeline, whose errors TensorFlow would tell in its own way."""
    (tmp_path / "a.txt").write_bytes(b"w1 w2\n" * 3 + b"w1 \xff\n")
    options = RunOptions.from_dict(TINY | {"n_train_tokens": 100})
    with pytest.raises(DataError, match=r"a\.txt, line 4: not UTF-8"):
        train(options, VOCABULARY, str(tmp_path / "*.txt"), tmp_path / "run", n_steps=50)


def test_seed_is_independent_of_random_numbers_drawn_before(tmp_path):
    folders = tmp_path / "first", tmp_path / "second"
    files = str(VOCABULARY), TEXT
    for made in [
        TrainingRun(tiny_options(**WORDS), *files, folder, strategy=on_cpu(), n_steps=1, seed=1)
        for folder in folders
    ]:
        made.train()
        keras.random.uniform(())  # a program that draws numbers of its own
    first, second = map(weights_of, folders)
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])


def test_resume_with_another_seed_or_window_is_refused(a_run):
    with pytest.raises(WeightsError, match="saved with seed 0, not 7"):
        run(a_run, seed=7)
    with pytest.raises(OptionsError, match="unroll_steps is 5"):
        run(a_run, changes=WORDS | {"unroll_steps": 9})
