"""A run from start to end: what it leaves in its folder, stopping and resuming, what it refuses."""

import json
import re
import shutil
import signal
from pathlib import Path

import keras
import numpy as np
import pytest
from tiny_runs import (
    HELDOUT,
    REGULARIZED,
    TEXT,
    VARIANTS,
    VOCABULARY,
    WORDS,
    assert_same_weights,
    before_last_save,
    run,
    tiny_options,
    tiny_run,
    train,
    weights_of,
)

from bilm.data import text as text_files
from bilm.data.dataset import SHUFFLE_BUFFER
from bilm.data.profile import Profile
from bilm.data.shards import resolve_shards
from bilm.errors import BilmError, DataError, OptionsError, OutOfMemoryError, WeightsError
from bilm.options import schema
from bilm.options.run_options import load_run_options
from bilm.scoring.perplexity import Perplexity
from bilm.storage.checkpoint import latest_checkpoint
from bilm.storage.stored_model import open_model
from bilm.training import memory, texts
from bilm.training import run as training
from bilm.training.finetuning import finetune
from bilm.training.history import read_history
from bilm.training.run_folder import RunFolder
from bilm.training.signals import stop_on_signal
from bilm.training.step import Trainer

N_PREDICTIONS = 358  # of the training text: its words and the ends of its sentences


def copy_of_the_text(folder):
    return Path(shutil.copy(next(Path(TEXT).parent.iterdir()), folder / "a.txt"))


# Other tests train the other variants anyway.
ALONE = "no_projection", "no_cnn_projection"


@pytest.mark.parametrize(
    "variant",
    [pytest.param(v, marks=pytest.mark.slow if v in ALONE else ()) for v in VARIANTS],
)
def test_training_of_each_model_variant_has_finite_weights(variant):
    values = weights_of(tiny_run(variant))
    assert all(np.isfinite(value).all() for value in values.values())
    options = tiny_options(**VARIANTS[variant])
    assert ("char_embed" in values) == (options.char_cnn is not None)
    assert ("softmax/W" in values) != options.share_embedding_softmax
    assert any("RNN_1" in name for name in values) == options.bidirectional


def test_training_writes_options_vocabulary_and_checkpoint():
    folder = tiny_run("characters")
    options = json.loads((folder / "options.json").read_text())
    assert options["n_train_tokens"] == N_PREDICTIONS
    assert options["n_tokens_vocab"] == len(VOCABULARY.read_text().splitlines())
    assert options["char_cnn"]["n_characters"] == 261
    profile = resolve_shards(TEXT).profile()._replace(examples={})
    assert options["training_text"] == profile._asdict()
    assert open_model(folder).profile == Profile.from_record(options["training_text"])
    assert (folder / "vocab.txt").read_bytes() == VOCABULARY.read_bytes()
    assert (folder / "model.ckpt-2.index").exists()


def test_number_of_steps_from_epochs(tmp_path, log):
    changes = WORDS | {"n_train_tokens": 505, "n_epochs": 3}
    result = run(tmp_path, None, heldout=HELDOUT, changes=changes, checkpoint_steps=1_000)
    assert result.step == 150  # 50 an epoch
    assert log.text.count("held-out perplexity") == 3
    assert json.loads((tmp_path / "options.json").read_text())["n_train_tokens"] == 505


def test_sampled_loss_falls(tmp_path, log):
    changes = WORDS | {"dropout": 0.0, "n_epochs": 1}
    saves = {"checkpoint_steps": 1_000, "log_steps": 100}
    result = run(tmp_path, 300, heldout=TEXT, changes=changes, **saves)
    losses = [float(found) for found in re.findall(r"sampled loss ([\d.]+)", log.text)]
    assert losses[-1] < losses[0] - 0.3
    assert result.heldout.mean < 40  # of 49 words


def test_small_vocabulary_uses_the_full_softmax(tmp_path, log):
    run(tmp_path, 1, changes=WORDS | {"n_negative_samples_batch": 49})
    assert "49 negatives are not below the vocabulary's 49 words: the full softmax" in log.text
    assert "full-softmax loss " in log.text
    # The requested value is stored: fine-tuning with more words samples again.
    assert json.loads((tmp_path / "options.json").read_text())["sample_softmax"] is True


def test_seed_is_independent_of_random_numbers_drawn_before(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "Trainer", Trainer)  # not one for both runs
    folders = tmp_path / "first", tmp_path / "second"
    for folder in folders:
        run(folder, 1, seed=1)
        keras.random.uniform(())  # a program that draws numbers of its own
    assert_same_weights(*folders)


def test_global_settings_of_keras_do_not_change_a_run(tmp_path, keras_config):
    run(tmp_path / "plain", 2, heldout=HELDOUT)
    keras_config.set_floatx("float16")
    keras_config.set_dtype_policy("mixed_bfloat16")
    keras_config.set_image_data_format("channels_first")
    keras_config.set_epsilon(0.1)
    run(tmp_path / "changed", 2, heldout=HELDOUT)
    assert_same_weights(tmp_path / "plain", tmp_path / "changed")
    plain, changed = (RunFolder(tmp_path / name).read_measured() for name in ("plain", "changed"))
    assert plain.perplexity == changed.perplexity


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1]


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_finishes_the_step_and_saves_the_run(number, tmp_path, monkeypatch, log):
    step = Trainer.step

    def step_and_signal(self, iterator, number_of_step):
        if number_of_step == 3:
            signal.raise_signal(number)
        return step(self, iterator, number_of_step)

    before = list(map(signal.getsignal, SIGNALS))
    monkeypatch.setattr(Trainer, "step", step_and_signal)
    result = run(tmp_path, 6, checkpoint_steps=1_000)
    assert (result.step, result.finished) == (4, False)
    assert "stopped at step 4, saved" in log.text
    assert list(map(signal.getsignal, SIGNALS)) == before
    assert (tmp_path / "model.ckpt-4.index").exists()


def test_repeated_signals_of_a_system_do_not_end_the_save():
    """A shell and the terminal send SIGHUP twice, Slurm SIGUSR1 before SIGTERM."""
    with stop_on_signal() as stop:
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(number)
        assert stop.is_set()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_signal_while_evaluating_loses_nothing(tmp_path, monkeypatch):
    def evaluate(*_):
        signal.raise_signal(signal.SIGTERM)
        return Perplexity({"forward": 9.0}, 9.0, 10)

    monkeypatch.setattr(training.Evaluator, "__call__", evaluate)
    result = run(tmp_path, 6, heldout=HELDOUT, eval_steps=2, checkpoint_steps=1_000)
    assert (result.step, result.finished) == (2, False)
    assert (tmp_path / "model.ckpt-2.index").exists()


def test_ignored_ctrl_c_stays_ignored(monkeypatch):
    """As under `nohup` and in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop_on_signal() as stop:
            signal.raise_signal(signal.SIGINT)
            assert not stop.is_set()
            signal.raise_signal(signal.SIGTERM)
            assert stop.is_set()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_error_in_the_text_saves_the_steps_before(tmp_path):
    # Read ahead as far as lines wait to be drawn, the bad one is met after some steps.
    lines = b"w1 w2 w3\n" * (SHUFFLE_BUFFER + 50)
    (tmp_path / "text").write_bytes(lines + b"bad \xff\n")
    saved = tmp_path / "run"
    changes = WORDS | {"n_train_tokens": 10**8}  # not counted
    with (
        pytest.MonkeyPatch.context() as patched,
        pytest.raises(DataError, match=rf"text, line {SHUFFLE_BUFFER + 51}: not UTF-8"),
    ):
        patched.setattr("bilm.data.survey.SAMPLE_TOKENS", 50)
        run(saved, 10_000, str(tmp_path / "text"), changes=changes, checkpoint_steps=10_000)
    step = latest_checkpoint(saved).record.step
    assert step > 1
    assert int(read_history(saved / "history.csv")[-1]["step"]) == step


@pytest.mark.parametrize(
    ("changes", "n_replicas"),
    [
        pytest.param({}, 1, id="characters"),
        pytest.param(WORDS | REGULARIZED, 2, id="all regularization, 2 replicas"),
        pytest.param(WORDS, 2, id="2 replicas", marks=pytest.mark.slow),
        pytest.param(REGULARIZED, 2, id="regularized characters", marks=pytest.mark.slow),
    ],
)
def test_resume_is_bit_identical(tmp_path, log, changes, n_replicas):
    """Each replica gets its own rows' states back after a kill."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    flags = {"n_replicas": n_replicas, "changes": changes}
    run(straight, 6, checkpoint_steps=3, **flags)
    before_last_save(straight, 6, killed)
    result = run(killed, 6, **flags)
    assert (result.step, result.finished) == (6, True)
    assert "continuing at step 3 of 6" in log.text
    assert_same_weights(straight, killed)


def test_resume_does_not_count_the_corpus_again(a_run, monkeypatch):
    monkeypatch.setattr(texts, "survey", lambda *_, **__: pytest.fail("counted again"))
    assert run(a_run, n_steps=4).step == 4


def test_resume_with_another_text_is_refused(a_run, tmp_path):
    text = copy_of_the_text(tmp_path)
    assert run(a_run, 4, text=str(text)).step == 4  # the same, elsewhere
    text.write_bytes(text.read_bytes() + b"the\n")
    match = r"found a\.txt, \d+ bytes, SHA-256 of the ends \w+, but the run in this folder"
    with pytest.raises(DataError, match=match):
        run(a_run, 5, text=str(text))


@pytest.mark.parametrize("change", ["longer words", "blank lines"])
def test_resume_with_a_changed_text_of_equal_size_is_refused(tmp_path, monkeypatch, change):
    monkeypatch.setattr("bilm.data.stream.END_BYTES", 0)  # it changed between the ends
    text = copy_of_the_text(tmp_path)
    run(tmp_path / "run", 4, text=str(text))
    content = text.read_bytes()
    longer, blank = content.replace(b" ", b"x"), b"\n" * len(content)
    text.write_bytes(longer if change == "longer words" else blank)
    with pytest.raises(DataError, match=r"a\.txt: has changed since the checkpoint was saved"):
        run(tmp_path / "run", 6, text=str(text))


@pytest.mark.parametrize(
    ("error", "match", "changes", "arguments"),
    [
        (OptionsError, r"lstm is .*'dim': 8.*, but .*'dim': 16.* was", {"lstm": {"dim": 16}}, {}),
        (OptionsError, "bidirectional is False", {"bidirectional": True}, {}),
        (OptionsError, "unroll_steps is 5", {"unroll_steps": 9}, {}),
        (WeightsError, "saved with 2 rows, but this run has 3", {"batch_size": 3}, {}),
        (WeightsError, "saved with seed 0, not 7", {}, {"seed": 7}),
    ],
)
def test_resume_with_other_options_is_refused(a_run, error, match, changes, arguments):
    lstm = WORDS["lstm"] | changes.get("lstm", {})
    with pytest.raises(error, match=match):
        run(a_run, changes=WORDS | changes | {"lstm": lstm}, **arguments)


def test_resume_with_another_vocabulary_is_refused(a_run, tmp_path, monkeypatch):
    words = VOCABULARY.read_text().splitlines()
    (tmp_path / "vocab.txt").write_text("\n".join([*words[:-2], words[-1], words[-2]]))
    monkeypatch.setattr("tiny_runs.VOCABULARY", tmp_path / "vocab.txt")
    with pytest.raises(DataError, match="the vocabulary of this folder's run differs from"):
        run(a_run)


def test_resume_logs_changed_options(a_run, log):
    run(a_run, n_steps=4, changes=WORDS | {"dropout": 0.5, "warmup_steps": 3})
    for change in ("dropout was 0.1 so far, and is 0.5", "warmup_steps was 0 so far, and is 3"):
        assert f"{a_run}: {change} from here" in log.text


# Without masks of rows and words.
DECAYED = WORDS | {"optimizer": "adam", "weight_decay": 0.5, "learning_rate": 0.02}


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [VARIANTS["shared_softmax"], VARIANTS["forward_only"], DECAYED],
    ids=["shared softmax", "characters", "weight decay"],
)
def test_replicas_equal_one_of_all_rows(tmp_path, changes):
    changes = changes | {"lstm": {"n_layers": 1}, "dropout": 0, "sample_softmax": False}
    for n_replicas in (1, 2):
        rows = changes | {"batch_size": 4 // n_replicas}
        run(tmp_path / str(n_replicas), 3, n_replicas=n_replicas, changes=rows)
    assert_same_weights(tmp_path / "1", tmp_path / "2", 5e-6 if "optimizer" in changes else 1e-6)


@pytest.fixture
def losses(monkeypatch):
    """What each step of the runs of a test reports."""
    seen = []
    add = training.RunReport.add

    def adding(self, spec, done, result, *others):
        seen.append(np.array(result.losses))
        add(self, spec, done, result, *others)

    monkeypatch.setattr(training.RunReport, "add", adding)
    return seen


@pytest.mark.parametrize(
    "optimizer", ["adagrad", "muon", pytest.param("adam", marks=pytest.mark.slow)]
)
def test_resume_with_another_number_of_replicas_keeps_slots(tmp_path, losses, log, optimizer):
    plain = WORDS | {"bidirectional": True, "dropout": 0.0, "sample_softmax": False}
    plain["optimizer"] = optimizer
    run(tmp_path / "straight", 6, changes=plain)
    straight = [step.mean(axis=0) for step in losses]
    losses.clear()
    run(tmp_path / "run", 2, changes=plain)
    run(tmp_path / "run", 4, changes=plain, n_replicas=2)
    assert "the run's 2 rows are now shared by 2 replicas x 1 rows" in log.text
    assert '"batch_size": 2' in (tmp_path / "run" / "options.json").read_text()
    run(tmp_path / "run", 6, changes=plain)
    assert [len(step) for step in losses] == [1, 1, 2, 2, 1, 1]
    for found, expected in zip(losses, straight, strict=True):
        np.testing.assert_allclose(found.mean(axis=0), expected, rtol=1e-5)
    assert_same_weights(tmp_path / "straight", tmp_path / "run", 1e-5)


def test_replicas_that_do_not_divide_the_rows_are_refused(tmp_path):
    run(tmp_path, changes=WORDS | {"batch_size": 3})
    with pytest.raises(WeightsError, match="its 3 rows cannot be shared by 2 replicas"):
        run(tmp_path, 5, changes=WORDS | {"batch_size": 3}, n_replicas=2)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("seed", 2**31, "an integer from 0 to 2147483647"),
        ("n_steps", 2**31, "an integer from 1 to 2147483647"),
        ("eval_steps", 0, "an integer from 1"),
        ("resume", "perhaps", "auto or never or must"),
        ("checkpoint_minutes", -1, "a number from 0"),
    ],
)
def test_setting_out_of_range_is_refused(tmp_path, name, value, expected):
    with pytest.raises(OptionsError, match=f"^{name}: found .*, expected {expected}"):
        run(tmp_path / "run", **{"n_steps": 1, name: value})
    assert not list(tmp_path.iterdir())


def test_setting_resume_is_compared_with_the_folder(a_run, tmp_path):
    with pytest.raises(BilmError, match=rf"{a_run}: contains a run; use another folder"):
        run(a_run, resume="never")
    with pytest.raises(BilmError, match=r"new: contains no checkpoint"):
        run(tmp_path / "new", resume="must")
    assert run(a_run, n_steps=4, resume="must").step == 4
    assert run(tmp_path / "new", n_steps=1, resume="never").step == 1


@pytest.mark.parametrize("is_new", [True, False], ids=["new run", "resumed run"])
def test_training_text_is_read_once_before_the_first_step(tmp_path, a_run, monkeypatch, is_new):
    """For counts and the comparison with held-out text together; its first words also apart from
    that, for warnings and for the profile."""
    opened = []
    open_file = text_files.opened

    def noted(path):
        opened.append(Path(path).name)
        return open_file(path)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(text_files, "opened", noted)
    monkeypatch.setattr(training, "TrainingText", stop)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "new" if is_new else a_run, 4, heldout=HELDOUT)
    assert opened.count(next(Path(TEXT).parent.iterdir()).name) == 2


def test_warning_if_heldout_text_is_trained_on(tmp_path, log):
    link = tmp_path / "link"
    link.symlink_to(next(Path(TEXT).parent.iterdir()))
    run(tmp_path / "run", 1, heldout=str(link))
    assert f"{link}: also occurs in the training text" in log.text


@pytest.mark.parametrize("word", ["New York", "New\u00a0York"])
def test_vocabulary_word_with_whitespace(tmp_path, monkeypatch, word):
    """Refused in a new run, unless published vocabularies may contain it."""
    given, reads_characters = tmp_path / "words", {"changes": VARIANTS["forward_only"]}
    monkeypatch.setattr("tiny_runs.VOCABULARY", given)
    given.write_text(VOCABULARY.read_text() + f"{word}\n")
    if "\u00a0" in word:
        run(tmp_path / "run", 1, **reads_characters)
        return
    for refused in ("the\t17", word):
        given.write_text(VOCABULARY.read_text() + f"{refused}\n")
        with pytest.raises(DataError, match=re.escape(f"words: {refused!r} contains whitespace")):
            run(tmp_path / "run", 1, **reads_characters)
        assert not (tmp_path / "run").exists()
    with monkeypatch.context() as patch:  # an earlier version accepted it
        patch.setattr(texts, "check_words", lambda vocab: None)
        run(tmp_path / "run", 1, **reads_characters)
    assert run(tmp_path / "run", 2, **reads_characters).finished
    assert finetune(tmp_path / "run", TEXT, tmp_path / "tuned", n_steps=1).finished
    with pytest.raises(DataError, match="contains whitespace"):
        finetune(tmp_path / "run", TEXT, tmp_path / "new", new_vocab=given, n_steps=1)


def test_number_of_words_that_differs_from_the_vocabulary_is_refused(tmp_path):
    path = tmp_path / "options.json"
    schema.write(path, tiny_options(n_tokens_vocab=793_471).to_dict())
    message = f"{path}: n_tokens_vocab: found 793471, expected 49, the number of words of /"
    with pytest.raises(OptionsError, match=re.escape(message)):
        train(load_run_options(path), VOCABULARY, TEXT, tmp_path / "run")
    assert run(tmp_path / "run", 1, changes=WORDS | {"n_tokens_vocab": 49}).finished


@pytest.mark.parametrize("link", [False, True])
def test_text_that_includes_the_vocabulary_is_refused(tmp_path, monkeypatch, link):
    copy_of_the_text(tmp_path)
    given = Path(shutil.copy(VOCABULARY, tmp_path / ("words" if link else "vocab.txt")))
    if link:
        (tmp_path / "vocab.txt").symlink_to(given)
    monkeypatch.setattr("tiny_runs.VOCABULARY", given)
    with pytest.raises(DataError, match=r"\.txt: also matches the vocabulary"):
        run(tmp_path / "run", 1, text=str(tmp_path / "*.txt"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("checkpoint_steps", [2, 100], ids=["save", "epoch"])
def test_text_that_changes_during_training_is_refused(tmp_path, monkeypatch, checkpoint_steps):
    text, step = copy_of_the_text(tmp_path), Trainer.step

    def changing(self, iterator, number):
        if number == 1:
            text.write_bytes(text.read_bytes() + b"the\n")
        return step(self, iterator, number)

    monkeypatch.setattr(Trainer, "step", changing)
    changes = WORDS | {"n_train_tokens": 20, "n_epochs": 9}  # epochs of two steps
    with pytest.raises(DataError, match=r"a\.txt: has changed during training: found .* step 2"):
        run(tmp_path / "run", 9, text=str(text), checkpoint_steps=checkpoint_steps, changes=changes)
    assert not RunFolder(tmp_path / "run").holds_run


def test_memory_is_estimated_before_the_first_step(tmp_path, log, monkeypatch):
    monkeypatch.setattr(memory, "machine_memory", lambda: 10**8)
    match = r"memory: about 0\.8 GB \(weights .*, but this machine has 0\.1 GB; reduce .*--ignore_"
    with pytest.raises(OutOfMemoryError, match=match):
        run(tmp_path / "a", 1)
    assert not RunFolder(tmp_path / "a").holds_run
    assert run(tmp_path / "a", 1, ignore_memory=True).finished
    monkeypatch.setattr(memory, "machine_memory", lambda: 10**9)
    assert run(tmp_path / "b", 1).finished
    assert len([message for message in log.messages if message.startswith("memory: ")]) == 3


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/a/b\n", {"a/memory.max": "4096", "a/b/memory.max": "max"}, 4096),
        ("0::/a/b\n", {"a/memory.max": "8192", "a/b/memory.max": "4096"}, 4096),
        ("0::/outside/of/the/container\n", {"memory.max": "4096"}, 4096),
        ("4:cpu,memory:/a/b\n0::/\n", {"memory/a/memory.limit_in_bytes": "4096"}, 4096),
        ("3:cpu:/a\n", {"memory/a/memory.limit_in_bytes": "4096"}, None),
        (None, {}, None),
    ],
)
def test_memory_is_that_of_the_control_groups(groups, limits, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "LIMITS", tmp_path / "limits")
    whole = memory.machine_memory()
    if groups is not None:
        (tmp_path / "cgroup").write_text(groups)
    for name, limit in limits.items():
        path = tmp_path / "limits" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(limit + "\n")
    assert memory.machine_memory() == (expected or whole)
