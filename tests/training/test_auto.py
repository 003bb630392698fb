"""`--options auto`: recipes by the size of a text, length by a time budget, what is stored."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from command_runs import assert_fails
from tiny_runs import HELDOUT, TEXT, VOCABULARY, tiny_options

from bilm.commands import options
from bilm.data.shards import resolve_shards
from bilm.data.survey import word_statistics
from bilm.data.vocabulary import Vocabulary
from bilm.doctor import probes
from bilm.doctor.speed import training_run
from bilm.errors import DataError, OptionsError
from bilm.options.run_options import load_run_options
from bilm.training import auto
from bilm.training.hosts.exchange import Alone
from bilm.training.run_folder import RunFolder

STEP = {"float32": auto.Times(0.5), "bfloat16": auto.Times(0.25)}


@pytest.mark.parametrize("n_predictions", [1, 20_000, 350_000, 1_000_000, 3_580_000, 10**10])
def test_every_size_of_text_has_valid_options(n_predictions):
    options = auto.options_for(n_predictions)
    assert options.n_train_tokens == n_predictions
    assert options.from_dict(options.to_dict()) == options


def test_larger_texts_get_larger_models_and_less_dropout():
    found = [auto.options_for(n) for n in (20_000, 350_000, 1_000_000, 10**7)]
    sizes = [options.lstm.dim for options in found]
    assert sizes == sorted(sizes)
    rates = [options.dropout for options in found if options.lstm.dim == sizes[-1]]
    assert rates == sorted(rates, reverse=True)


def test_without_a_budget_a_run_has_the_epochs_of_its_recipe():
    options = auto.options_for(1_000_000)
    choice = auto.choose(options, 500.0, STEP)
    assert choice.n_steps == options.n_epochs * (1_000_000 // (64 * 20))
    assert choice.precision == "bfloat16"  # the faster one
    assert choice.hours == pytest.approx(choice.n_steps * 0.25 / 3600, rel=0.2)


@pytest.mark.parametrize("hours", [0.05, 0.2, 0.5])
def test_a_run_uses_its_time_budget(hours):
    choice = auto.choose(auto.options_for(10**8), 500.0, STEP, hours)
    assert choice.hours == pytest.approx(hours, rel=0.02)
    assert choice.n_steps * 0.25 < 3600 * hours


@pytest.mark.parametrize("eval_steps", [None, 50])
def test_expected_time_includes_the_evaluations(eval_steps):
    options = auto.options_for(20_000)
    times = {"float32": auto.Times(step=0.08, prediction=5e-5)}
    evaluation = auto.Evaluation(90_000, eval_steps)
    alone, with_them = (
        auto.choose(options, 500.0, times, evaluation=e) for e in (auto.Evaluation(), evaluation)
    )
    assert with_them.n_steps == alone.n_steps
    n_evaluations = alone.n_steps / (eval_steps or 20_000 // (16 * 20))
    added = 3600 * (with_them.hours - alone.hours)
    assert added == pytest.approx(n_evaluations * 90_000 * 5e-5, rel=0.2)
    budget = with_them.hours / 2
    chosen = auto.choose(options, 500.0, times, budget, evaluation)
    assert chosen.hours == pytest.approx(budget, rel=0.02)
    assert chosen.n_steps < alone.n_steps / 2


def test_a_budget_below_a_step_is_refused():
    with pytest.raises(OptionsError, match=r"hours: found 0\.01, expected more: .* 100 steps"):
        auto.choose(auto.options_for(10**8), 500.0, STEP, 0.01)


def test_expected_perplexity_falls_with_time_and_text():
    def expected(n_predictions, hours=None):
        low, high = auto.choose(auto.options_for(n_predictions), 500.0, STEP, hours).perplexity
        assert 1 <= low < high
        return math.sqrt(low * high)

    by_text = [expected(n) for n in (20_000, 350_000, 1_000_000, 3_580_000)]
    assert by_text == sorted(by_text, reverse=True)
    by_time = [expected(3_580_000, hours) for hours in (0.05, 0.1, 0.2, 0.5)]
    assert by_time == sorted(by_time, reverse=True)


def test_short_runs_have_a_short_warmup():
    options = auto.options_for(20_000)
    assert auto.with_warmup(options, 10_000) == options
    assert auto.with_warmup(options, 100).warmup_steps == 20
    assert auto.with_warmup(options, 1).warmup_steps == 1


def test_choice_is_restored_from_json():
    choice = auto.choose(auto.options_for(20_000), 500.0, STEP)
    assert auto.Choice.from_record(json.loads(json.dumps(choice._asdict()))) == choice


@pytest.mark.parametrize("change", [{"n_steps": 0}, {"n_steps": "9"}, {"precision": "int8"}])
def test_damaged_record_is_refused(change):
    record = auto.choose(auto.options_for(20_000), 500.0, STEP)._asdict()
    with pytest.raises(OptionsError, match=next(iter(change))):
        auto.Choice.from_record(record | change)


def test_word_statistics(tmp_path):
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\na\nb\n")
    (tmp_path / "text.txt").write_text("a a b\n\nb zzz\n")
    vocab = Vocabulary(str(tmp_path / "vocab.txt"))
    n, perplexity = word_statistics(resolve_shards(str(tmp_path / "text.txt")), vocab)
    shares = np.array([2, 2, 1, 2]) / 7  # a, b, <UNK>, </S>
    assert n == 7
    assert perplexity == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
    (tmp_path / "blank.txt").write_text("\n\n")
    with pytest.raises(DataError, match="no sentence"):
        word_statistics(resolve_shards(str(tmp_path / "blank.txt")), vocab)


def test_auto_is_only_known_to_train():
    with pytest.raises(OptionsError, match="auto: chosen by `bilm train`"):
        load_run_options("auto")


def arguments(folder):
    return ["--input", TEXT, "--vocab", VOCABULARY, "--output", folder]


def test_hours_require_auto(tmp_path, run_here):
    done = run_here("bilm train", *arguments(tmp_path), "--options", "tiny", "--hours", "1")
    assert_fails(done, "--hours requires --options auto", status=2)


def test_auto_refuses_several_workers(tmp_path, run_here, monkeypatch):
    class Two(Alone):
        n_workers = 2

    monkeypatch.setattr(options, "run_hosts", lambda run: Two())
    done = run_here("bilm train", *arguments(tmp_path), "--options", "auto")
    assert_fails(done, "several workers", status=2)


@pytest.mark.slow
def test_auto_run_resumes_with_its_own_length(tmp_path, run_here, monkeypatch):
    """The second command is the same; nothing is measured again."""
    folder, measured = tmp_path / "run", []

    def ask(*arguments, **more):
        measured.append(arguments)
        return {"float32": [0.001, 0.0001]}

    monkeypatch.setattr(probes, "ask", ask)
    command = [*arguments(folder), "--heldout", HELDOUT]
    assert run_here("bilm train", *command, "--n_steps", "2").returncode == 0
    record = RunFolder(folder).read_auto()
    assert run_here("bilm train", *command, "--n_steps", "3").returncode == 0
    assert RunFolder(folder).read_auto() == record and len(measured) == 1
    assert run_here("bilm train", *command).returncode == 0
    assert RunFolder(folder).latest_checkpoint().step == record["n_steps"]
    assert load_run_options(folder / "options.json").lstm.dim == 512  # compact


@pytest.mark.slow
def test_training_steps_are_timed_on_the_text(tmp_path):
    file = tmp_path / "options.json"
    file.write_text(json.dumps(tiny_options().to_dict()))
    text = tmp_path / "text.txt"
    text.write_bytes(
        b"".join(Path(shard).read_bytes() for shard in resolve_shards(TEXT)) + b"caf\xe9 .\n"
    )
    how = str(text), str(VOCABULARY), "replace"
    found = probes.ask("training_steps", str(file), *how, timeout=300)
    assert found.keys() <= {"float32", "bfloat16"} and min(found["float32"]) > 0


def test_training_is_timed_with_the_full_softmax_if_the_vocabulary_has_fewer_words_than_negatives():
    options = tiny_options().replace(n_negative_samples_batch=10_000, sample_softmax=True)
    timed = training_run(options, TEXT, VOCABULARY)
    assert not timed.trainer.options.sample_softmax
    assert np.isfinite(timed.trainer.step(timed.iterator, 0).global_norm.numpy())
