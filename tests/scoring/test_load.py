"""`load_scorer`: scores of runs and of their exports equal the measured perplexity."""

import json
import math
import subprocess

import keras
import numpy as np
import pytest
from command_runs import words_of
from conftest import GOLDEN, golden_cases

if keras.backend.backend() != "tensorflow":
    pytest.skip("checkpoints are TensorFlow's", allow_module_level=True)
from scorers import WORDS, check, model_of, one
from tiny_runs import load_run, tiny_run

import bilm
from bilm.data.shards import resolve_shards
from bilm.data.vocabulary import vocabulary_of
from bilm.errors import OptionsError, WeightsError
from bilm.export.hdf5 import dump_weights
from bilm.scoring.perplexity import heldout_dataset, perplexity
from bilm.scoring.scorer import Scorer, load_scorer, perplexity_of_scores
from bilm.storage import names as weights
from bilm.storage.hdf5 import save_hdf5

HELDOUT, VOCABULARY = GOLDEN / "data" / "heldout" / "*", GOLDEN / "data" / "vocab.txt"
CHECKPOINTS = golden_cases("checkpoint")


def heldout():
    return resolve_shards(HELDOUT).sentences()


@pytest.mark.parametrize("folder", CHECKPOINTS)
def test_golden_scores_equal_the_measured_perplexity(folder):
    model = load_run(folder)
    dataset = heldout_dataset(
        HELDOUT,
        vocabulary_of(VOCABULARY, model.options, model.n_tokens),
        model.options.bidirectional,
    )
    expected = perplexity(model, dataset, 4, stateless=True)
    found = perplexity_of_scores(bilm.score(heldout(), save_dir=folder, vocab_file=VOCABULARY))
    assert found.n_predictions == expected.n_predictions
    assert found.directions == pytest.approx(expected.directions, rel=1e-5)
    assert found.mean == pytest.approx(expected.mean, rel=1e-5)


@pytest.mark.parametrize("folder", CHECKPOINTS)
def test_golden_scores_of_an_export_equal_those_of_its_run(folder, tmp_path):
    run = load_scorer(folder, VOCABULARY)
    weight_file, options_file, softmax_file = dump_weights(
        folder, tmp_path / "elmo.hdf5", include_softmax=True, vocab_file=VOCABULARY
    )
    export = load_scorer(options_file=options_file, weight_file=weight_file)
    assert export.words == run.words
    expected = list(run.score(heldout()))
    check(list(export.score(heldout())), expected)
    words = next(heldout())
    files = {"options_file": options_file, "weight_file": weight_file}
    other = softmax_file.rename(tmp_path / "other.hdf5")
    found = bilm.substitutes(words, 0, 3, **files, softmax_file=other)
    assert found == run.substitutes(words, 0, 3)
    with pytest.raises(WeightsError, match=r"expected .*elmo_softmax\.hdf5, which bilm export"):
        load_scorer(**files)
    with pytest.raises(WeightsError, match="dataset `vocabulary` is missing"):
        load_scorer(**files, softmax_file=weight_file)


def test_load_scorer_of_an_export_with_a_shared_table_in_one_direction(tmp_path):
    model = model_of("forward shared")
    values = weights.stored_values(model)
    values["softmax/W"] = values["embedding"]
    softmax = {name: values.pop(name) for name in ("softmax/W", "softmax/b")}
    save_hdf5(tmp_path / "w.hdf5", values)
    words = np.array(WORDS, dtype=object)
    save_hdf5(tmp_path / "w_softmax.hdf5", {**softmax, "vocabulary": words})
    options = model.options.for_export()
    del options["bidirectional"]  # the weights tell
    (tmp_path / "options.json").write_text(json.dumps(options))
    export = load_scorer(options_file=tmp_path / "options.json", weight_file=tmp_path / "w.hdf5")
    found = one(export, ["cat", "unheard", "sat"])
    check([found], [one(Scorer(model, WORDS), ["cat", "unheard", "sat"])])
    assert found.backward is None
    assert found.mean == pytest.approx(found.total["forward"] / 4)
    assert export.substitutes(["cat"], 0)[1:] == (None, None, True)


def test_load_scorer_requires_exactly_one_model(tmp_path):
    with pytest.raises(OptionsError, match="given: no model; expected one model"):
        bilm.score([["the"]])
    with pytest.raises(OptionsError, match="given: model, save_dir"):
        load_scorer(tmp_path, save_dir=tmp_path)
    with pytest.raises(OptionsError, match="has no softmax file; remove the argument softmax"):
        load_scorer(CHECKPOINTS[0].values[0], softmax_file=tmp_path / "w.hdf5")


# --- the commands ---


@pytest.mark.slow
def test_golden_score_test_and_substitutes_commands():
    """Several commands at once: starting takes most of their time."""
    folder = CHECKPOINTS[0].values[0]
    run = ["--model", folder, "--vocab", VOCABULARY]
    started = [
        start("bilm test", *run, "--input", HELDOUT, "--stateless"),
        start("bilm score", *run, "--input", HELDOUT),
        start("bilm score", *run, "--per_token", stdin="one two\n\nthree\n"),
        start("bilm substitutes", *run, "--sentence", "one ? three", "--position", 1, "--n", 3),
        start("bilm substitutes", *run, "--sentence", "one two three", "--position", 3),
    ]
    measured, scored, by_token, table = (finish(p, 0) for p in started[:4])
    _, error = finish(started[4], 1)

    name, value = scored[1].splitlines()[-1].split(" = ")
    measured, scored, by_token, table = (
        done[0].splitlines() for done in (measured, scored, by_token, table)
    )
    assert name == "AVERAGE PERPLEXITY"
    assert float(value) == pytest.approx(float(measured[-1].split(" = ")[1]), rel=1e-5)
    lines = [line.split("\t") for line in scored[1:]]
    assert [line[-1].split() for line in lines] == list(heldout())
    n_predictions = sum(int(line[3]) for line in lines)
    assert f"PREDICTIONS PER DIRECTION = {n_predictions}" in measured
    for i, direction in enumerate(["FORWARD", "BACKWARD"]):
        loss = -sum(float(line[i]) for line in lines) / n_predictions
        figure = next(line for line in measured if line.startswith(direction)).split(" = ")[1]
        assert math.exp(loss) == pytest.approx(float(figure), rel=1e-5)
    total, mean = sum(map(float, lines[0][:2])), float(lines[0][2])
    assert mean == pytest.approx(total / 2 / int(lines[0][3]), abs=1e-5)

    column = [line.split("\t")[-1] for line in by_token]
    assert column == ["token", "<S>", "one", "two", "</S>", "<S>", "three", "</S>"]
    assert by_token[1].startswith("0\t\t") and by_token[4].split("\t")[2] == ""
    assert table[0].split() == ["forward", "backward", "both"] and len(table) == 4
    at = table[0].index("backward")
    assert all(line[at - 1] == " " != line[at] for line in table)

    lines = [line for line in error.splitlines() if "error:" in line]
    assert len(lines) == 1 and "but the sentence has 3 words" in lines[0]
    assert "Traceback" not in error


def start(name, *arguments, stdin=""):
    process = subprocess.Popen(
        [*words_of(name), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    process.stdin.write(stdin)
    process.stdin.close()
    process.stdin = None  # communicate would flush it
    return process


def finish(process, status):
    output, error = process.communicate(timeout=300)
    assert process.returncode == status, error
    return output, error


def test_load_scorer_reads_a_named_checkpoint(monkeypatch):
    run = tiny_run("characters")
    (index,) = run.glob("model.ckpt-*.index")
    expected = load_scorer(run).substitutes(["the", "bank"], 1, 3)
    monkeypatch.chdir(run.parent)
    for name in (index.name, index, index.relative_to(run.parent)):
        assert load_scorer(run, weight_file=name).substitutes(["the", "bank"], 1, 3) == expected
