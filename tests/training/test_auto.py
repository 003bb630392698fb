"""`--options auto`: recipes by the size of a text, length by a time budget, what is stored."""

import re
from pathlib import Path

import pytest
from command_runs import assert_fails
from tiny_runs import (
    HELDOUT,
    TEXT,
    VOCABULARY,
    WORDS,
    on_cpu,
    tiny_options,
    train,
)

from bilm.commands import options
from bilm.data.shards import resolve_shards
from bilm.errors import OptionsError
from bilm.options.run_options import load_run_options
from bilm.training import auto, timing
from bilm.training.devices import Devices
from bilm.training.hosts.exchange import Hosts
from bilm.training.run_folder import RunFolder

STEP = {"float32": 0.5, "bfloat16": 0.25}


@pytest.mark.parametrize("n_predictions", [1, 20_000, 350_000, 1_000_000, 3_580_000, 10**10])
def test_every_size_of_text_has_valid_options(n_predictions):
    options = auto.options_for(n_predictions)
    assert options.n_train_tokens == n_predictions
    assert options.from_dict(options.to_dict()) == options


def test_without_a_budget_a_run_has_the_epochs_of_its_recipe():
    options = auto.options_for(1_000_000)
    choice = auto.choose(options, STEP)
    assert choice.n_steps == options.n_epochs * (1_000_000 // (64 * 20))
    assert choice.precision == "bfloat16"  # the faster one
    assert choice.hours == pytest.approx(choice.n_steps * 0.25 / 3600, rel=0.2)


@pytest.mark.parametrize("hours", [0.05, 0.2, 0.5])
def test_a_run_uses_its_time_budget(hours):
    choice = auto.choose(auto.options_for(10**8), STEP, hours=hours)
    assert choice.hours == pytest.approx(hours, rel=0.02)
    assert choice.n_steps * 0.25 < 3600 * hours


@pytest.mark.parametrize("eval_steps", [None, 50])
def test_expected_time_includes_the_evaluations(eval_steps):
    options = auto.options_for(20_000)
    times = {"float32": 0.08}
    alone, with_them = (
        auto.choose(options, times, n_heldout=n, eval_steps=eval_steps) for n in (0, 90_000)
    )
    assert with_them.n_steps == alone.n_steps
    n_evaluations = alone.n_steps / (eval_steps or 20_000 // (16 * 20))
    added = 3600 * (with_them.hours - alone.hours)
    assert added == pytest.approx(n_evaluations * 90_000 * 0.08 / (16 * 20), rel=0.2)
    budget = with_them.hours / 2
    chosen = auto.choose(options, times, hours=budget, n_heldout=90_000, eval_steps=eval_steps)
    assert chosen.hours == pytest.approx(budget, rel=0.02)
    assert chosen.n_steps < alone.n_steps / 2


def test_a_budget_below_a_step_is_refused():
    with pytest.raises(OptionsError, match=r"hours: found 0\.01, expected more: .* 100 steps"):
        auto.choose(auto.options_for(10**8), STEP, hours=0.01)


def test_requested_precision_is_chosen_on_resume():
    options = auto.options_for(20_000)
    choice = auto.choose(options, {"float32": 0.5})
    assert choice.precision == "float32"
    resumed = auto.resumed(choice._asdict(), options, {}, precision="bfloat16")
    assert resumed == choice._replace(precision="bfloat16")


@pytest.mark.parametrize(("device", "capability"), [("CPU:0", 7), ("GPU:0", 7), ("GPU:0", 8)])
def test_bfloat16_is_offered_by_the_devices_that_train(tmp_path, monkeypatch, device, capability):
    """A processor that has it does not make a GPU without it fast."""
    (tmp_path / "cpuinfo").write_text("flags : avx512f amx_bf16\n")
    monkeypatch.setattr(timing, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(timing.tf.config, "get_visible_devices", lambda kind: ["a", "b"])
    details = {"compute_capability": (capability, 0)}
    monkeypatch.setattr(timing.tf.config.experimental, "get_device_details", lambda gpu: details)
    devices = Devices(on_cpu())
    devices.names = [device]
    assert ("bfloat16" in timing.precisions(devices)) == (device == "CPU:0" or capability == 8)


def test_replicas_share_the_steps_of_an_epoch():
    options = auto.options_for(1_000_000)
    one, two = (auto.choose(options, STEP, n_replicas=n) for n in (1, 2))
    assert one.n_steps == pytest.approx(2 * two.n_steps, abs=options.n_epochs)


def test_resumed_run_keeps_its_length_unless_another_is_requested():
    stored = auto.options_for(20_000)
    choice = auto.choose(stored, STEP, hours=0.05)
    record = choice._asdict()

    def n_steps(changes, **request):
        return auto.resumed(record, stored, changes, **request).n_steps

    assert n_steps({}) == n_steps({"n_epochs": 24}) == choice.n_steps
    assert n_steps({}, n_steps=7) == 7
    assert n_steps({"n_epochs": 20}) is None  # derived from n_epochs


def test_short_runs_have_a_short_warmup():
    options = auto.options_for(20_000)
    assert auto.with_warmup(options, 10_000) == options
    assert auto.with_warmup(options, 100).warmup_steps == 20
    assert auto.with_warmup(options, 1).warmup_steps == 1


def test_auto_is_only_known_to_train():
    with pytest.raises(OptionsError, match="auto: chosen by `bilm train`"):
        load_run_options("auto")


def arguments(folder):
    return ["--input", TEXT, "--vocab", VOCABULARY, "--output", folder]


def test_hours_require_auto(tmp_path, run_here):
    done = run_here("bilm train", *arguments(tmp_path), "--options", "tiny", "--hours", "1")
    assert_fails(done, "--hours requires --options auto", status=2)


def test_resumed_run_with_other_epochs_stores_its_length_for_any_number_of_replicas(tmp_path):
    run = [str(VOCABULARY), TEXT, tmp_path]
    record = auto.choose(auto.options_for(20_000), STEP)._asdict()
    options = tiny_options(**WORDS, n_epochs=1).replace(n_train_tokens=100)
    train(options, *run, strategy=on_cpu(), auto=record)
    assert RunFolder(tmp_path).record().auto["n_steps"] == 10  # of 2 rows x 5 tokens
    twice, record = options.replace(n_epochs=2), record | {"n_steps": None}
    train(twice, *run, strategy=on_cpu(2), auto=record)
    assert RunFolder(tmp_path).record().auto["n_steps"] == 20


def test_auto_announces_a_range_of_perplexity_that_depends_on_the_bigrams(tmp_path, log):
    options = tiny_options(**WORDS).replace(n_train_tokens=100)
    record = auto.choose(auto.options_for(20_000), STEP)._asdict()
    for n_steps in (2, 3):  # the second continues the first
        arguments = [str(VOCABULARY), TEXT, tmp_path, HELDOUT]
        train(options, *arguments, strategy=on_cpu(), auto=record, n_steps=n_steps)
    found = re.findall(r"auto: expected held-out perplexity: (\d+) to (\d+)\n", log.text)
    bigrams = float(re.findall(r"bigrams alone: ([\d.]+);", log.text)[0])
    expected = auto.expected_perplexity(options, bigrams, 2)
    assert found == [tuple(f"{bound:.0f}" for bound in expected)]


@pytest.mark.parametrize(
    ("n_predictions", "bigrams", "n_steps", "reached"),
    [
        pytest.param(20_819, 48.09, 1_560, 38.39, id="English, 20,000"),
        pytest.param(363_742, 109.88, 6_816, 62.69, id="English, 350,000"),
        pytest.param(363_742, 109.88, 450, 91.07, id="English, 350,000, a short run"),
        pytest.param(1_040_810, 137.8, 6_504, 72.5, id="English, 1,000,000"),
        pytest.param(3_580_000, 188.23, 25_500, 66.5, id="English, 3,440,000"),
        pytest.param(45_801, 219.12, 3_432, 186.44, id="Gothic"),
        pytest.param(39_808, 108.8, 2_976, 67.98, id="Old French"),
    ],
)
def test_measured_perplexities_are_in_the_range_that_auto_expects(
    n_predictions, bigrams, n_steps, reached
):
    options = auto.options_for(n_predictions)
    least, most = auto.expected_perplexity(options, bigrams, n_steps)
    assert least <= reached <= most <= 1.5 * least


@pytest.mark.parametrize(("n_steps", "better"), [(100, 200), (100, 1_000), (2_000, 4_000)])
def test_longer_runs_are_expected_to_be_better(n_steps, better):
    options = auto.options_for(1_000_000)
    bounds = [auto.expected_perplexity(options, 200.0, n) for n in (n_steps, better)]
    assert all(a > b > 1 for a, b in zip(*bounds, strict=True))


def test_auto_refuses_several_workers(tmp_path, run_here, monkeypatch):
    two = Hosts()
    two.n_workers = 2
    monkeypatch.setattr(options, "run_hosts", lambda run: two)
    done = run_here("bilm train", *arguments(tmp_path), "--options", "auto")
    assert_fails(done, "several workers", status=2)


@pytest.mark.slow
def test_auto_run_resumes_with_its_own_length(tmp_path, run_here, monkeypatch):
    """The second command is the same; nothing is measured again."""
    folder, measured = tmp_path / "run", []

    def measure(*arguments):
        measured.append(arguments[3:])
        return {"float32": 0.001}

    monkeypatch.setattr(timing, "measure", measure)
    command = [*arguments(folder), "--heldout", HELDOUT, "--n_gpus=0"]
    for length in (["--n_steps", "2"], ["--n_steps", "3"], []):
        done = run_here("bilm train", *command, *length)
        own = [line for line in done.stderr.splitlines() if not re.match(r"[IWE]0000 |\t", line)]
        assert done.returncode == 0 and len(own) <= 16, done.stderr  # without TensorFlow's lines
        n_steps = int(length[1]) if length else 3
        assert RunFolder(folder).latest_checkpoint().record.step == n_steps
        assert RunFolder(folder).record().auto["n_steps"] == n_steps
    devices = {"n_gpus": 0, "cpu_replicas": 1}
    assert measured == [("error", None, devices)]
    assert load_run_options(folder / "options.json").lstm.dim == 512  # compact


@pytest.mark.slow
def test_training_steps_are_timed_on_the_text(tmp_path):
    text = tmp_path / "text.txt"
    text.write_bytes(
        b"".join(Path(shard).read_bytes() for shard in resolve_shards(TEXT)) + b"caf\xe9 .\n"
    )
    found = timing.measure(tiny_options(), str(text), VOCABULARY, "replace")
    assert found.keys() <= {"float32", "bfloat16"} and found["float32"] > 0
    devices = {"n_gpus": 0, "cpu_replicas": 2}
    found = timing.measure(tiny_options(), str(text), VOCABULARY, "replace", "bfloat16", devices)
    assert found.keys() == {"bfloat16"} and found["bfloat16"] > 0
