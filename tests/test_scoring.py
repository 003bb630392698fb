"""A language model to ask: equal to its perplexity, aligned with the words, batch or no batch."""

import json
import math
import subprocess
from itertools import cycle, islice

import keras
import numpy as np
import pytest
from command_runs import words_of
from conftest import GOLDEN, golden_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from options_examples import CHAR_CNN, LSTM

if keras.backend.backend() != "tensorflow":
    pytest.skip("checkpoints are TensorFlow's", allow_module_level=True)

import bilm
from bilm.ask import load_scorer
from bilm.data.shards import Shards, resolve_shards
from bilm.data.vocabulary import Vocabulary
from bilm.errors import DataError, OptionsError, WeightsError
from bilm.evaluation import heldout_dataset, perplexity
from bilm.language_model import BiLM
from bilm.options import ModelOptions
from bilm.scores import perplexity_of_scores
from bilm.scoring import Scorer
from bilm.storage import names as weights
from bilm.storage.checkpoint import load_run, model_vocabulary
from bilm.training.export import dump_weights

HELDOUT, VOCABULARY = GOLDEN / "data" / "heldout" / "*", GOLDEN / "data" / "vocab.txt"
CHECKPOINTS = golden_cases("checkpoint")
MARKS = ["<S>", "</S>", "<UNK>"]
WORDS = ["the", "cat", "sat", "on", "Москва", "", "mat", "the", *MARKS, "日本語"]
PROPER = ["the", "cat", "sat", "on", "Москва", "mat", "日本語"]
MODELS = {
    "chars": {"char_cnn": CHAR_CNN, "bidirectional": True},
    "words": {"bidirectional": True},
    "forward shared": {"bidirectional": False, "share_embedding_softmax": True},
}
ATOL = 1e-5

tokens = st.sampled_from([*PROPER, *MARKS, "unheard", "of", "😀", "Straßenbahnhaltestelle" * 9])
sentences = st.lists(tokens, max_size=12)


@pytest.fixture(scope="module")
def model_of():
    """Models with random weights, made when first requested, so peaked that ranks are clear."""
    made = {}

    def model(name):
        if name not in made:
            keras.utils.set_random_seed(3)
            options = ModelOptions.from_dict({"lstm": LSTM, **MODELS[name]})
            made[name] = BiLM(options, n_tokens=len(WORDS), softmax=True)
            made[name].build()
            for variable in weights.stored_variables(made[name]).values():
                variable.assign(np.random.default_rng(5).normal(size=variable.shape) * 0.7)
        return made[name]

    return model


@pytest.fixture(scope="module", params=MODELS)
def scorer(request, model_of):
    return Scorer(model_of(request.param), WORDS)


@pytest.fixture(scope="module")
def chars(model_of):
    return Scorer(model_of("chars"), WORDS)


def heldout():
    return resolve_shards(HELDOUT).sentences()


def check(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        for x, y in zip(a, b, strict=True):
            assert (x is None) == (y is None)
            if x is not None:
                assert x.dtype == np.float32 and x.shape == y.shape
                np.testing.assert_allclose(x, y, atol=ATOL)


def one(scorer, words):
    return next(scorer.score([words]))


def of(found, direction):
    """A direction's log-probabilities of the words, without the mark."""
    return found.forward[:-1] if direction == "forward" else found.backward[1:]


@pytest.mark.parametrize("folder", CHECKPOINTS)
def test_golden_perplexity_is_that_of_the_evaluation(folder):
    model = load_run(folder)
    dataset = heldout_dataset(
        HELDOUT, model_vocabulary(VOCABULARY, model), model.options.bidirectional
    )
    expected = perplexity(model, dataset, 4, stateless=True)
    found = perplexity_of_scores(bilm.score(heldout(), save_dir=folder, vocab_file=VOCABULARY))
    assert found.n_predictions == expected.n_predictions
    assert found.directions == pytest.approx(expected.directions, rel=1e-5)
    assert found.mean == pytest.approx(expected.mean, rel=1e-5)


@pytest.mark.parametrize("folder", CHECKPOINTS)
def test_golden_export_scores_as_its_run(folder, tmp_path):
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
    with pytest.raises(WeightsError, match=r"elmo_softmax\.hdf5: no such file"):
        load_scorer(**files)
    with pytest.raises(WeightsError, match="no dataset `vocabulary`"):
        load_scorer(**files, softmax_file=weight_file)


def test_export_of_a_shared_table_in_one_direction(model_of, tmp_path):
    model = model_of("forward shared")
    values = weights.stored_values(model)
    values["softmax/W"] = values["embedding"]
    softmax = {name: values.pop(name) for name in ("softmax/W", "softmax/b")}
    weights.save_hdf5(tmp_path / "w.hdf5", values)
    words = np.array(WORDS, dtype=object)
    weights.save_hdf5(tmp_path / "w_softmax.hdf5", {**softmax, "vocabulary": words})
    options = model.options.for_export()
    del options["bidirectional"]  # the weights tell
    (tmp_path / "options.json").write_text(json.dumps(options))
    export = load_scorer(options_file=tmp_path / "options.json", weight_file=tmp_path / "w.hdf5")
    found = one(export, ["cat", "unheard", "sat"])
    check([found], [one(Scorer(model, WORDS), ["cat", "unheard", "sat"])])
    assert found.backward is None
    assert found.mean == pytest.approx(found.total["forward"] / 4)
    assert export.substitutes(["cat"], 0)[1:] == (None, None)


@given(st.lists(sentences, max_size=8), st.sampled_from([1, 5, 32]))
@settings(max_examples=25, deadline=None)
def test_neighbours_order_and_batches_change_nothing(chars, text, batch_tokens):
    expected = [one(chars, words) for words in text]
    chars.batch_tokens = batch_tokens  # also cuts sentences, whose state is carried over
    try:
        check(list(chars.score(text)), expected)
        check(list(chars.score(text[::-1])), expected[::-1])
    finally:
        chars.batch_tokens = 1024
    assert [found.n_predictions for found in expected] == [len(words) + 1 for words in text]


def test_a_stream_is_scored_as_it_comes(scorer):
    endless = cycle([["the", "cat"], [], ["sat"]])
    found = list(islice(scorer.score(endless), 5))
    check(found[3:], found[:2])
    assert list(scorer.score([])) == []


@given(st.lists(tokens, min_size=1, max_size=10), tokens, st.data())
@settings(max_examples=40, deadline=None)
def test_scores_lie_where_their_words_are(chars, words, other, data):
    """A word shows in its own prediction, and to a direction in those it reads afterwards."""
    k = data.draw(st.integers(0, len(words) - 1))
    a, b = one(chars, words), one(chars, [*words[:k], other, *words[k + 1 :]])
    np.testing.assert_allclose(a.forward[:k], b.forward[:k], atol=ATOL)
    np.testing.assert_allclose(a.backward[k + 2 :], b.backward[k + 2 :], atol=ATOL)
    if {words[k], other} <= {"unheard", "of", "😀"}:  # predicted as <UNK> all of them
        assert a.forward[k] == pytest.approx(b.forward[k], abs=ATOL)
        assert a.backward[k + 1] == pytest.approx(b.backward[k + 1], abs=ATOL)
        if other != words[k]:  # but read by their own characters
            assert a.forward[k + 1] != pytest.approx(b.forward[k + 1], abs=ATOL)
            assert a.backward[k] != pytest.approx(b.backward[k], abs=ATOL)


def test_a_model_of_words_reads_unk_for_what_it_does_not_know(model_of):
    scorer = Scorer(model_of("words"), WORDS)
    text = [["the", "unheard", "cat"], ["the", "<UNK>", "cat"]]
    check(*([found] for found in scorer.score(text)))


def test_of_equal_words_the_last_counts_as_in_the_evaluation(model_of, tmp_path):
    model, text = model_of("words"), tmp_path / "text"
    text.write_text("the cat the\nthe the mat\n", encoding="utf-8")
    (tmp_path / "vocab").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    vocab = Vocabulary(tmp_path / "vocab")
    assert vocab.size == len(WORDS) and vocab.word_to_id("the") == 7
    expected = perplexity(model, heldout_dataset(str(text), vocab, True), 2, stateless=True)
    found = perplexity_of_scores(Scorer(model, WORDS).score(Shards([text]).sentences()))
    assert found.directions == pytest.approx(expected.directions, rel=1e-5)


def test_totals_and_mean(chars):
    found = one(chars, ["the", "cat"])
    sums = {name: sum(map(float, getattr(found, name))) for name in ("forward", "backward")}
    assert found.total == pytest.approx(sums)
    assert found.mean == pytest.approx(sum(sums.values()) / 6)
    assert perplexity_of_scores([found, found]).mean == pytest.approx(math.exp(-found.mean))


def test_substitutes_are_what_score_says_of_each_word(scorer):
    words = ["the", "unheard", "sat", "on", "日本語"]
    for position in range(len(words)):
        found = scorer.substitutes(words, position, n=100)
        scored = [one(scorer, [*words[:position], word, *words[position + 1 :]]) for word in PROPER]
        expected = {
            name: {w: of(s, name)[position] for w, s in zip(PROPER, scored, strict=True)}
            for name in scorer.model.directions
        }
        if len(expected) == 2:
            pairs = zip(PROPER, *(expected[name].values() for name in expected), strict=True)
            expected["both"] = {word: left + right for word, left, right in pairs}
        for name, column in found._asdict().items():
            if name not in expected:
                assert column is None
                continue
            assert dict(column) == pytest.approx(expected[name], abs=ATOL)  # no marks, none twice
            values = [value for _, value in column]
            assert values == sorted(values, reverse=True)
        masked = [*words[:position], "[MASK]", *words[position + 1 :]]
        assert scorer.substitutes(masked, position, n=2).forward == found.forward[:2]


def test_substitutes_see_one_side_each(chars):
    found = chars.substitutes(["the", "x", "mat"], 1)
    left = chars.substitutes(["the", "x", "cat", "sat"], 1)
    right = chars.substitutes(["x", "mat"], 0)
    assert dict(left.forward) == pytest.approx(dict(found.forward), abs=ATOL)
    assert dict(right.backward) == pytest.approx(dict(found.backward), abs=ATOL)
    assert left.backward != found.backward and right.forward != found.forward


@pytest.mark.parametrize("position", [-1, 2, 100])
def test_a_position_outside_the_sentence(chars, position):
    with pytest.raises(DataError, match=f"position is {position}, but the sentence has 2 words"):
        chars.substitutes(["the", "cat"], position)


def test_what_is_no_sentence_or_model(chars, tmp_path):
    for bad in ("the cat", ["the", 3], 7):
        with pytest.raises(DataError, match=r"sentence 1 is .* a list of words"):
            list(chars.score([["the"], bad]))
        with pytest.raises(DataError, match="a list of words"):
            chars.substitutes(bad, 0)
    with pytest.raises(ValueError, match="n is 0"):
        chars.substitutes(["the"], 0, n=0)
    for words in (WORDS[1:], ["a", *WORDS[:8], *WORDS[9:]]):
        with pytest.raises(DataError, match="expected the model's 12"):
            Scorer(chars.model, words)
    with pytest.raises(ValueError, match="batch_tokens"):
        Scorer(chars.model, WORDS, batch_tokens=0)
    with pytest.raises(DataError, match="no sentence"):
        perplexity_of_scores(chars.score([]))
    with pytest.raises(OptionsError, match="given: no model; expected one model"):
        bilm.score([["the"]])
    with pytest.raises(OptionsError, match="given: model, save_dir"):
        load_scorer(tmp_path, save_dir=tmp_path)
    with pytest.raises(OptionsError, match="is a run, which has its softmax; leave it out"):
        load_scorer(CHECKPOINTS[0].values[0], softmax_file=tmp_path / "w.hdf5")


@pytest.mark.slow
def test_golden_commands():
    """run_test.py, score.py and substitutes.py at once: starting takes most of their time."""
    folder = CHECKPOINTS[0].values[0]
    run = ["--save_dir", folder, "--vocab_file", VOCABULARY]
    started = [
        start("run_test.py", *run, "--test_prefix", HELDOUT, "--stateless"),
        start("bilm score", "--model", folder, "--vocab", VOCABULARY, "--input", HELDOUT),
        start("score.py", *run, "--per_token", stdin="one two\n\nthree\n"),
        start("substitutes.py", *run, "--sentence", "one ? three", "--position", 1, "--n", 3),
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
    lines = [line.split("\t") for line in scored]  # rows only
    assert [line[-1].split() for line in lines] == list(heldout())
    n_predictions = sum(int(line[3]) for line in lines)
    assert f"PREDICTIONS A DIRECTION = {n_predictions}" in measured
    for i, direction in enumerate(["FORWARD", "BACKWARD"]):
        loss = -sum(float(line[i]) for line in lines) / n_predictions
        figure = next(line for line in measured if line.startswith(direction)).split(" = ")[1]
        assert math.exp(loss) == pytest.approx(float(figure), rel=1e-5)
    total, mean = sum(map(float, lines[0][:2])), float(lines[0][2])
    assert mean == pytest.approx(total / 2 / int(lines[0][3]), abs=1e-5)

    column = [line.split("\t")[-1] for line in by_token]
    assert column == ["<S>", "one", "two", "</S>", "", "<S>", "three", "</S>", ""]
    assert by_token[0].startswith("nan\t") and by_token[3].split("\t")[1] == "nan"
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
