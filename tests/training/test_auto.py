"""`--options auto`: recipes by the size of a text, length by a time budget, what is stored."""

import math
import re
from types import SimpleNamespace

import pytest
import tensorflow as tf
from command_runs import assert_fails, succeeded
from stored_files import stored_values
from tiny_runs import HELDOUT, TEXT, VOCABULARY, WORDS, on_cpu, tiny_options

import bilm
from bilm.data.shards import resolve_shards
from bilm.data.stream import describe_shards
from bilm.data.vocabulary import Vocabulary
from bilm.errors import ArgumentError, OptionsError, WeightsError
from bilm.options.run_options import load_run_options
from bilm.scoring.ngrams import Ngrams, text_ids
from bilm.scoring.verdict import Comparison
from bilm.storage.run_record import AutoChoice, RunRecord
from bilm.storage.stored_model import open_model
from bilm.training import auto, devices, run
from bilm.training.decisions import Pace
from bilm.training.request import RunRequest
from bilm.training.run_folder import RunFolder
from bilm.training.starting import new_run, resumed_run

VOCAB = Vocabulary(VOCABULARY)


@pytest.mark.parametrize("n_predictions", [20_000, 350_000, 1_000_000])
def test_shorter_runs_have_less_regularization_and_larger_rates(n_predictions):
    recipe = auto.options_for(n_predictions)
    assert recipe.n_train_tokens == n_predictions
    once, twice = (auto.changes_for(recipe, n_epochs) for n_epochs in (1, 2))
    for key in auto.REGULARIZATION:
        assert 0.0 == once[key] < twice[key] < getattr(recipe, key)
    assert auto.FAST_RATE == once["learning_rate"] > twice["learning_rate"] > recipe.learning_rate
    assert auto.changes_for(recipe, 0.1) == once
    assert auto.changes_for(recipe, recipe.n_epochs) == {}
    assert "learning_rate" not in auto.changes_for(recipe.replace(learning_rate=0.01), 2)


def test_values_that_the_user_chose_stay():
    recipe = auto.options_for(20_000)
    chosen = {"dropout": 0.2, "learning_rate": 0.01}
    changes = auto.changes_for(recipe.replace(**chosen), 2)
    assert changes.keys() == {*auto.REGULARIZATION, "learning_rate"} - chosen.keys()


@pytest.mark.parametrize(("requested", "n_epochs"), [({}, 3), ({"n_steps": 25}, 0.5)])
def test_requested_length_determines_the_regularization(tmp_path, requested, n_epochs):
    asked = {"changes": {"n_epochs": 3, "n_train_tokens": 64_000}}  # 50 steps each
    spec = new_run(request(**asked, **requested), RunFolder(tmp_path))
    recipe = auto.options_for(64_000).replace(n_epochs=3)
    expected = recipe.replace(**auto.changes_for(recipe, n_epochs))
    assert spec.options == expected.replace(n_tokens_vocab=49)
    assert spec.n_steps == requested.get("n_steps", 150) == spec.auto.n_steps
    assert spec.start.args == (auto.ENCODER,)


@pytest.mark.parametrize(("device", "capability"), [("CPU:0", 7), ("GPU:0", 7), ("GPU:0", 8)])
def test_bfloat16_is_offered_by_the_devices_that_train(tmp_path, monkeypatch, device, capability):
    """A processor that has it does not make a GPU without it fast."""
    (tmp_path / "cpuinfo").write_text("flags : avx512f amx_bf16\n")
    monkeypatch.setattr(devices, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["a", "b"])
    details = {"compute_capability": (capability, 0)}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)
    of_run = devices.Devices(on_cpu())
    of_run.names = [device]
    assert devices.has_bfloat16(of_run) == (device == "CPU:0" or capability == 8)


@pytest.mark.parametrize(("gain", "precision"), [(0.0, "bfloat16"), (1e9, "float32")])
def test_bfloat16_is_chosen_if_its_products_are_faster(monkeypatch, gain, precision):
    monkeypatch.setattr(devices, "has_bfloat16", lambda of_run: True)
    monkeypatch.setattr(devices, "LEAST_GAIN", gain)
    assert devices.fastest_precision(devices.Devices(on_cpu()), tiny_options()) == precision


def stored(n_steps=70):
    """A checkpoint of a run that `auto` chose."""
    options = auto.options_for(20_000).to_dict()
    choice = AutoChoice(n_steps, "float32", None, auto.ENCODER)
    shards = describe_shards(resolve_shards(TEXT).paths)
    record = RunRecord(1, 70, 0, (16, 16), shards, VOCAB.digest, options, auto=choice)
    return SimpleNamespace(path="run/model.ckpt-1", record=record)


def request(n_steps=None, precision=None, changes=None, of_run=None, **requested):
    others = {"n_steps": n_steps, "precision": precision, **(changes or {})}
    requested = {"vocab": VOCABULARY, "started": 0.0} | requested
    return RunRequest(TEXT, others, devices=of_run or devices.Devices(on_cpu()), **requested)


def resumed(folder, checkpoint=None, **requested):
    return resumed_run(request(**requested), RunFolder(folder), checkpoint or stored())


def test_resumed_run_keeps_its_length_unless_another_is_requested(tmp_path, log):
    def length(checkpoint, **requested):
        return resumed(tmp_path, checkpoint, **requested).auto.n_steps

    assert length(stored()) == length(stored(), changes={"n_epochs": 12}) == 70
    assert length(stored(), n_steps=7) == 7
    assert length(stored(), changes={"n_epochs": 20}) == 20 * (20_000 // (16 * 20))
    assert length(stored(None), hours=1.0) is None  # it stopped before its pace was measured
    assert "--hours" not in log.text
    assert length(stored(), hours=1.0) == 70
    assert "a resumed run keeps its length; --hours is for new runs" in log.text


def test_time_budget_counts_from_the_start_of_the_command(tmp_path):
    asked = request(hours=1.0, started=100.0, changes={"n_train_tokens": 64_000})
    spec = new_run(asked, RunFolder(tmp_path))
    assert (spec.deadline, spec.auto.n_steps, spec.n_steps) == (3_700.0, None, 24 * 50)
    assert resumed(tmp_path, hours=1.0, started=5.0).deadline == math.inf


def test_resumed_run_keeps_its_options_unless_others_are_requested(tmp_path):
    spec = resumed(tmp_path, changes={"dropout": 0.7}, precision="bfloat16")
    assert spec.settings.precision == spec.auto.precision == "bfloat16"
    assert spec.options.dropout == 0.7
    assert spec.options.replace(dropout=0.39).lstm == auto.options_for(20_000).lstm
    other = auto.options_for(20_000).replace(batch_size=8)
    with pytest.raises(WeightsError, match="saved with 16 rows, but this run has 8"):
        resumed(tmp_path, options=other)


def test_auto_is_only_known_to_train():
    with pytest.raises(OptionsError, match="auto: chosen by `bilm train`"):
        load_run_options("auto")


def arguments(folder):
    return ["--input", TEXT, "--vocab", VOCABULARY, "--output", folder]


def test_hours_require_auto(tmp_path, run_here):
    done = run_here("bilm train", *arguments(tmp_path), "--options", "tiny", "--hours", "1")
    assert_fails(done, "--hours requires --options auto", status=2)
    done = run_here("bilm train", *arguments(tmp_path), "--hours", "nan")
    assert_fails(done, "'nan' is not a finite number", status=2)
    with pytest.raises(ArgumentError, match="hours is nan, expected a finite number"):
        bilm.train(TEXT, tmp_path / "run", hours=math.nan)


@pytest.fixture
def tiny_auto(monkeypatch):
    """`auto` chooses tiny options for a text of 100 predictions, from random weights."""
    tiny = tiny_options(**WORDS, n_epochs=2)
    monkeypatch.setattr(auto, "options_for", lambda n: tiny.replace(n_train_tokens=n))
    monkeypatch.setattr(auto, "recipe_for", lambda n: auto.Recipe(100, {}, 2))


def tiny_auto_run(folder, n_replicas=1, **others):
    return bilm.train(
        TEXT, folder, vocab=VOCABULARY, n_train_tokens=100, from_scratch=True,
        devices=devices.Devices(on_cpu(n_replicas)), **others,
    )  # fmt: skip


def test_resumed_run_with_other_epochs_and_replicas_stores_its_length(tmp_path, tiny_auto):
    tiny_auto_run(tmp_path)
    assert RunFolder(tmp_path).latest_checkpoint().record.auto.n_steps == 20  # of 2 rows x 5 tokens
    tiny_auto_run(tmp_path, n_replicas=2, n_epochs=3)
    assert RunFolder(tmp_path).latest_checkpoint().record.auto.n_steps == 30


def test_auto_announces_a_range_of_perplexity_that_depends_on_the_bigrams(tmp_path, log, tiny_auto):
    for n_steps in (2, 3):  # the second continues the first
        tiny_auto_run(tmp_path, heldout=HELDOUT, n_steps=n_steps)
    found = re.findall(r"auto: expected held-out perplexity: (\d+) to (\d+)\n", log.text)
    bigrams = float(re.findall(r"bigrams alone: ([\d.]+);", log.text)[0])
    text, heldout = (text_ids(resolve_shards(files), VOCAB) for files in (TEXT, HELDOUT))
    compared = Comparison.of(heldout, VOCAB, Ngrams.of(text, VOCAB))
    assert compared.bigrams == pytest.approx(bigrams, abs=0.005)
    expected = compared.replace(ratio=auto.expected_ratio(2 * 10, 100, VOCAB.size)).expected
    assert found == [tuple(f"{bound:.0f}" for bound in expected)]


def test_the_log_states_large_changes_of_the_length_alone(tmp_path, log, tiny_auto, monkeypatch):
    lengths = iter([16, 14, 12, 9, 5])
    monkeypatch.setattr(run, "pace", lambda *state: Pace(next(lengths), {}, 20))
    assert tiny_auto_run(tmp_path).step == 5
    found = re.findall(r"(\d+) steps instead of (\d+), to end on time", log.text)
    assert found == [("14", "20"), ("9", "14"), ("5", "9")]


def expected_range(n_read, n_train_tokens, bigrams, words=1e9, n_words=1):
    ratio = auto.expected_ratio(n_read, n_train_tokens, n_words)
    return Comparison(0.0, words, words, bigrams, bigrams, ratio=ratio).expected


def test_expected_perplexity_does_not_exceed_that_of_word_frequencies():
    least, most = expected_range(64, 10**6, 200.0, 450.0)
    assert least < most == 450
    assert expected_range(1, 10**6, 200.0, 450.0) == (450, 450)


@pytest.mark.parametrize(
    ("n_predictions", "n_words", "bigrams", "n_steps", "reached"),
    [
        pytest.param(20_819, 809, 48.09, 1_560, 38.39, id="English, 20,000"),
        pytest.param(363_742, 5_225, 110.04, 3_197, 62.87, id="English, 350,000"),
        pytest.param(1_040_810, 15_000, 137.8, 6_504, 72.5, id="English, 1,000,000"),
        pytest.param(3_580_000, 34_583, 188.23, 25_500, 66.5, id="English, 3,440,000"),
        pytest.param(46_118, 7_498, 187.7, 1_600, 184.33, id="Gothic"),
        pytest.param(39_808, 4_825, 108.8, 2_976, 67.98, id="Old French"),
        pytest.param(136_759, 15_490, 174.92, 104, 156.23, id="Turkish, one epoch"),
    ],
)
def test_measured_perplexity_is_as_expected(n_predictions, n_words, bigrams, n_steps, reached):
    options = auto.options_for(n_predictions)
    n_read = n_steps * options.batch_size * options.unroll_steps
    least, most = expected_range(n_read, n_predictions, bigrams, n_words=n_words)
    assert least <= reached <= most <= 1.5 * least


@pytest.mark.parametrize(("n_steps", "better"), [(100, 200), (100, 1_000), (2_000, 4_000)])
def test_longer_runs_are_expected_to_be_better(n_steps, better):
    few, many = (expected_range(n * 64 * 20, 1_000_000, 200.0) for n in (n_steps, better))
    assert few[0] > many[0] > 1 and few[1] > many[1]


def test_run_starts_from_the_encoder_of_a_packaged_model_only():
    stored = open_model(auto.ENCODER)
    model = stored.weights(has_softmax=True).build()
    model.set_weights([0 * value for value in model.get_weights()])
    stored.assign(model, softmax=False, stacks=False)
    names = [name for name, value in stored_values(model).items() if value.any()]
    assert {re.split("[/_]", name)[0] for name in names} == {"char", "CNN"}


def test_auto_refuses_several_workers(tmp_path):
    several = SimpleNamespace(several_hosts=True)
    for make, checkpoint in ((new_run, []), (resumed_run, [stored()])):
        with pytest.raises(ArgumentError, match="several workers"):
            make(request(of_run=several), RunFolder(tmp_path), *checkpoint)
    with pytest.raises(ArgumentError, match="--vocab is required for several workers"):
        new_run(request(of_run=several, options="tiny", vocab=None), RunFolder(tmp_path))


@pytest.mark.slow
def test_auto_run_starts_at_once_and_resumes_with_its_own_length(tmp_path, run_here):
    folder = tmp_path / "run"
    command = [*arguments(folder), "--heldout", HELDOUT, "--n_gpus=0"]
    for length in (["--n_steps", "2"], ["--n_steps", "3"], []):
        done = run_here("bilm train", *command, *length)
        own = [line for line in done.stderr.splitlines() if not re.match(r"[IWE]0000 |\t", line)]
        assert done.returncode == 0 and len(own) <= 20, done.stderr  # without TensorFlow's lines
        n_steps = int(length[1]) if length else 3
        record = RunFolder(folder).latest_checkpoint().record
        assert (record.step, record.auto.n_steps) == (n_steps, n_steps)
        assert record.auto.encoder == auto.ENCODER
    assert load_run_options(folder / "options.json").lstm.dim == 512  # compact


@pytest.mark.slow
def test_budget_that_is_too_short_is_a_warning(tmp_path, run_here):
    few = ["--n_gpus=0", "--batch_size=2", "--hours", "0.0001"]
    done = succeeded(run_here("bilm train", *arguments(tmp_path / "run"), *few))
    assert re.search(r"--hours 0\.0001: too short: .* hours suffice for \d+", done.stderr)
