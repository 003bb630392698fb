"""Adaptation to a text: no leak, equal to the static figure without it, normalized."""

import copy

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if keras.backend.backend() != "tensorflow":
    pytest.skip("dynamic evaluation is TensorFlow's", allow_module_level=True)
from command_runs import assert_fails
from scorers import MODELS, WORDS, check, model_of
from tiny_runs import HELDOUT, tiny_run

from bilm.data.shards import Shards
from bilm.data.vocabulary import vocabulary_of
from bilm.errors import NotFiniteError
from bilm.scoring.adaptation import Adaptation, Cache, adapted_perplexity
from bilm.scoring.perplexity import heldout_dataset, perplexity
from bilm.scoring.scorer import Scorer
from bilm.storage.names import stored_values

TEXT = [["the", "cat", "sat", "on", "unheard", "mat"], ["cat"], [], ["the", "mat", "日本語"]]
NOTHING = Adaptation()
BOTH = Adaptation(rate=0.05, decay=0.01, n_steps=2, cache=0.3, theta=0.1, cache_words=12)
DYNAMIC, CACHED = BOTH._replace(cache=0.0), BOTH._replace(rate=0.0)
SLOW_DYNAMIC, SLOW_BOTH = (pytest.param(a, marks=pytest.mark.slow) for a in (DYNAMIC, BOTH))


@pytest.fixture(
    scope="module",
    params=[
        name if name == "words" else pytest.param(name, marks=pytest.mark.slow) for name in MODELS
    ],
)
def scorer(request):
    return Scorer(model_of(request.param), WORDS)


@pytest.mark.parametrize("n_steps", [1, 3])
def test_rate_and_cache_of_zero_equal_the_static_scores(scorer, n_steps):
    expected = list(scorer.score(TEXT))
    check(list(scorer.score(TEXT, NOTHING._replace(n_steps=n_steps))), expected)


def test_perplexity_without_adaptation_equals_the_static_one(tmp_path):
    model = model_of("words")
    vocab_file, text = tmp_path / "vocab.txt", tmp_path / "text.txt"
    words = [f"w{i}" if word == "" else word for i, word in enumerate(WORDS)]
    words[words.index("the", 1)] = "other"  # words of a file are distinct
    vocab_file.write_text("\n".join(words) + "\n", encoding="utf-8")
    text.write_text("\n".join(map(" ".join, TEXT * 3)), encoding="utf-8")
    vocabulary = vocabulary_of(vocab_file, model.options, len(words))
    dataset = heldout_dataset(Shards([str(text)]), vocabulary, True)
    static = perplexity(model, dataset, 1)
    found = adapted_perplexity(model, dataset, NOTHING)
    assert found.n_predictions == static.n_predictions
    assert found.directions == pytest.approx(static.directions, rel=1e-6)
    assert found.mean == pytest.approx(static.mean, rel=1e-6)


@pytest.mark.parametrize(
    "adaptation", [SLOW_DYNAMIC, CACHED, BOTH], ids=["dynamic", "cache", "both"]
)
def test_later_text_does_not_change_earlier_scores(scorer, adaptation):
    """In a sentence of several updates, and between sentences."""
    changed = [*TEXT[:1], ["on"] * 9, ["sat", "sat"]]
    found, other = (list(scorer.score(text, adaptation)) for text in (TEXT, changed))
    check(found[:1], other[:1])
    words = ["cat", "sat", "on", "the", "mat", "the", "cat"]
    text = [[*TEXT[0], *words], [*words, "on", "on"]]
    last = [[*TEXT[0], *words[:-1], "日本語"], [*words, "on", "sat"]]
    found, other = (list(scorer.score(t, adaptation)) for t in (text, last))
    np.testing.assert_allclose(found[0].forward[:-2], other[0].forward[:-2], rtol=1e-5)
    first = [["日本語", *text[0][1:]]]
    if found[0].backward is not None:
        other = list(scorer.score(first, adaptation))
        np.testing.assert_allclose(found[0].backward[2:], other[0].backward[2:], rtol=1e-5)


@pytest.mark.parametrize("adaptation", [CACHED, SLOW_BOTH], ids=["cache", "both"])
def test_probabilities_of_all_words_sum_to_one(adaptation):
    words = [f"w{i}" if word in ("", "the") else word for i, word in enumerate(WORDS)]
    scorer = Scorer(model_of("words"), words)  # distinct words, so each id has one word
    total = 0.0
    for word in words:  # the third word of the second sentence; marks are words here
        first, second = TEXT[0], ["w0", "cat", word]
        total += np.exp(list(scorer.score([first, second], adaptation))[1].forward[2])
    assert total == pytest.approx(1, abs=1e-5)


def test_adaptation_does_not_change_the_model(scorer):
    before, static = stored_values(scorer.model), list(scorer.score(TEXT))
    list(scorer.score(TEXT, BOTH))
    after = stored_values(scorer.model)
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name])
    check(list(scorer.score(TEXT)), static)


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=12),
    st.integers(1, 5),
    st.floats(0, 3),
)
@settings(max_examples=20, deadline=None)
def test_cache_is_a_distribution_and_does_not_depend_on_windows(words, n_words, theta):
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(len(words), 3)).astype(np.float32)
    ids = np.array(words)
    whole = Cache(n_words, theta).log_probabilities(hidden, ids)
    parts, cache = [], Cache(n_words, theta)
    for t in range(len(words)):
        here = slice(t, t + 1)
        if t:
            all_words = [
                copy.deepcopy(cache).log_probabilities(hidden[here], np.array([w]))[0]
                for w in range(5)
            ]
            assert np.exp(all_words).sum() == pytest.approx(1)
        parts.append(cache.log_probabilities(hidden[here], ids[here])[0])
    np.testing.assert_allclose(whole, parts, rtol=1e-5)
    assert np.isnan(whole[0]) and len(cache.words) <= n_words


@pytest.mark.parametrize("rate", [1e5, 1e30])
def test_diverging_adaptation_is_an_error(scorer, rate):
    with pytest.raises(NotFiniteError, match=r"has diverged .* use a smaller learning rate than"):
        list(scorer.score(TEXT * 20, Adaptation(rate=rate, n_steps=2)))


# --- commands ---


def test_test_command_reports_adaptation_separately(run_here):
    command = ["bilm test", "--model", tiny_run("words"), "--input", HELDOUT]
    static, adapted = (
        dict(line.split(" = ") for line in run_here(*command, *more).stdout.splitlines())
        for more in (["--batch_size=1"], ["--adapt=0.01", "--cache=0.1"])
    )
    names = ["FORWARD PERPLEXITY", "BACKWARD PERPLEXITY", "AVERAGE PERPLEXITY"]
    assert list(adapted)[-1] == "AVERAGE PERPLEXITY"
    for name in names:
        assert adapted[name] == static[name]
        assert float(adapted[f"ADAPTED {name}"]) < float(static[name])


def test_surprisal_command_adds_adapted_columns(run_here, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("w1 w2\n\nw1 w2\nw1 w2\n", encoding="utf-8")
    command = ["bilm surprisal", "--model", tiny_run("words"), "--input", text]
    static, adapted = (
        [line.split("\t") for line in run_here(*command, *more).stdout.splitlines()]
        for more in ([], ["--cache=0.5"])
    )
    assert [row[:-2] for row in adapted] == static
    assert adapted[0][-2:] == ["forward_adapted", "backward_adapted"]
    forward = adapted[0].index("forward")
    assert adapted[1][-2] == adapted[1][forward]  # nothing was read before
    assert float(adapted[6][-2]) < float(adapted[6][forward])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--adapt=0.1", "--stateless"], "--stateless"),
        (["--cache=0.1", "--batch_size=2"], "--batch_size"),
        (["--cache=1"], "not in the range"),
    ],
    ids=str,
)
def test_test_command_refuses_options_that_do_not_fit(run_here, flags, message):
    done = run_here("bilm test", "--model", tiny_run("words"), "--input", HELDOUT, *flags)
    assert_fails(done, message, status=2)
