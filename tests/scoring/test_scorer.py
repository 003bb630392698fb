"""`Scorer`: scores aligned with the words, independent of batches; substitutes of a word."""

import math
from itertools import cycle, islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scorers import ATOL, MARKS, MODELS, WORDS, check, model_of, one, perplexity_of, scorer_of

from bilm.data.profile import TextSigns
from bilm.data.vocabulary import vocabulary_of
from bilm.errors import DataError
from bilm.scoring.running_text import heldout_dataset, perplexity

PROPER = ["the", "cat", "sat", "on", "Москва", "mat", "日本語"]
tokens = st.sampled_from([*PROPER, *MARKS, "unheard", "of", "😀", "Straßenbahnhaltestelle" * 9])
sentences = st.lists(tokens, max_size=12)


@pytest.fixture(scope="module", params=MODELS)
def scorer(request):
    return scorer_of(model_of(request.param))


@pytest.fixture(scope="module")
def chars():
    return scorer_of(model_of("chars"))


def of(found, direction):
    """A direction's log-probabilities of the words, without the mark."""
    return found.forward[:-1] if direction == "forward" else found.backward[1:]


@given(st.lists(sentences, max_size=8), st.sampled_from([1, 5, 32]))
@settings(max_examples=15, deadline=None)
def test_score_does_not_depend_on_order_or_batches(chars, text, batch_tokens):
    expected = [one(chars, words) for words in text]
    chars.batch_tokens = batch_tokens  # also cuts sentences, whose state is carried over
    try:
        check(list(chars.score(text)), expected)
        check(list(chars.score(text[::-1])), expected[::-1])
    finally:
        chars.batch_tokens = 1024
    assert [found.n_predictions for found in expected] == [len(words) + 1 for words in text]


def test_score_reads_an_endless_stream(scorer):
    endless = cycle([["the", "cat"], [], ["sat"]])
    found = list(islice(scorer.score(endless), 5))
    check(found[3:], found[:2])
    assert list(scorer.score([])) == []
    assert repr(scorer).startswith(f"<Scorer; {len(scorer.words)} words, forward")


@given(st.lists(tokens, min_size=1, max_size=10), tokens, st.data())
@settings(max_examples=25, deadline=None)
def test_score_is_aligned_with_words(chars, words, other, data):
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


def test_score_of_a_word_model_reads_unk_for_unknown_words():
    scorer = scorer_of(model_of("words"))
    unknown, marked = scorer.score([["the", "unheard", "cat"], ["the", "<UNK>", "cat"]])
    np.testing.assert_allclose(unknown.forward, marked.forward, atol=ATOL)
    np.testing.assert_allclose(unknown.backward, marked.backward, atol=ATOL)


def test_score_contains_tokens_and_marks_unknown_words(scorer):
    text = [["the", "unheard", "cat"], [], ["😀"]]
    for words, found in zip(text, scorer.score(iter(text)), strict=True):
        assert found.tokens == words
        assert found.is_known.dtype == bool and len(found.is_known) == len(found.forward)
        assert found.is_known.tolist() == [word in WORDS for word in words] + [True]


def test_substitutes_mark_an_unknown_word(scorer):
    assert scorer.substitutes(["the", "cat"], 1).is_known is True
    assert scorer.substitutes(["the", "unheard"], 1).is_known is False


@pytest.mark.parametrize("n_rows", [1, 3, 13])
@pytest.mark.parametrize("name", MODELS)
def test_scores_of_rows_equal_the_perplexity_of_running_text(tmp_path, name, n_rows):
    text = [["the", "cat", "sat"], ["mat"], ["unheard", "on", "the", "<UNK>", "mat"], ["on"]] * 3
    path, model = tmp_path / "text", model_of(name)
    path.write_text("".join(f"{' '.join(words)}\n" for words in text), encoding="utf-8")
    (tmp_path / "vocab").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    vocab = vocabulary_of(tmp_path / "vocab", model.options, len(WORDS))
    assert vocab.word_to_id("the") == 7  # the last of two equal words
    dataset = heldout_dataset(str(path), vocab, len(model.directions) == 2)
    expected = perplexity(model, dataset, n_rows)
    for batch_tokens in (4, 1024):
        scores = list(scorer_of(model, batch_tokens).score_rows(text, n_rows))
        assert sorted(score.tokens for score in scores) == sorted(text)
        found = perplexity_of(scores)
        assert found.n_predictions == expected.n_predictions
        assert found.directions == pytest.approx(expected.directions, rel=1e-5)
        assert found.known == pytest.approx(expected.known, rel=1e-5)
    assert list(scorer_of(model).score_rows([], n_rows)) == []


def test_score_total_and_mean(chars):
    found = one(chars, ["the", "cat"])
    sums = {name: sum(map(float, getattr(found, name))) for name in ("forward", "backward")}
    assert found.total == pytest.approx(sums)
    assert found.mean == pytest.approx(sum(sums.values()) / 6)
    assert perplexity_of([found, found]).mean == pytest.approx(math.exp(-found.mean))


def test_substitutes_equal_the_scores_of_each_word(scorer):
    words = ["the", "unheard", "sat", "on", "日本語"]
    for position in range(len(words)):
        found = scorer.substitutes(words, position, n=100)
        scored = [one(scorer, [*words[:position], word, *words[position + 1 :]]) for word in PROPER]
        expected = {
            name: {w: of(s, name)[position] for w, s in zip(PROPER, scored, strict=True)}
            for name in scorer.directions
        }
        if len(expected) == 2:
            products = {
                word: math.exp(sum(expected[name][word] for name in expected))
                * (len(WORDS) - WORDS[::-1].index(word) - 1 + 2.7)  # Zipf's law by the rank
                for word in PROPER
            }
            total = sum(products.values())
            expected["both"] = {word: math.log(each / total) for word, each in products.items()}
        for name in ("forward", "backward", "both"):
            column = getattr(found, name)
            if name not in expected:
                assert column is None
                continue
            assert dict(column) == pytest.approx(expected[name], abs=ATOL)  # no marks, none twice
            values = [value for _, value in column]
            assert values == sorted(values, reverse=True)
        masked = [*words[:position], "[MASK]", *words[position + 1 :]]
        assert scorer.substitutes(masked, position, n=2).forward == found.forward[:2]


def test_substitutes_read_one_side_each(chars):
    found = chars.substitutes(["the", "x", "mat"], 1)
    left = chars.substitutes(["the", "x", "cat", "sat"], 1)
    right = chars.substitutes(["x", "mat"], 0)
    assert dict(left.forward) == pytest.approx(dict(found.forward), abs=ATOL)
    assert dict(right.backward) == pytest.approx(dict(found.backward), abs=ATOL)
    assert left.backward != found.backward and right.forward != found.forward


@pytest.mark.parametrize("position", [-1, 3, 1.9, True, "1", None])
def test_substitutes_refuse_positions_that_are_not_integers(chars, position):
    words = ["the", "cat", "sat"]
    for ask in (chars.substitutes, lambda words, k: next(chars.log_probabilities(words, [0, k]))):
        with pytest.raises(DataError, match=f"is {position!r}, but .* 3 words; expected an int"):
            ask(words, position)
    places = np.arange(3)
    assert len(list(chars.log_probabilities(words, places))) == 3


def test_scorer_warns_once_of_signs(chars, caplog):
    chars.signs = TextSigns("sentences to score")
    for _ in range(2):
        list(chars.score([["the", "cat", "<PAD>"]]))
        chars.substitutes(["the", "<PAD>"], 0)
    assert caplog.text.count("sentences to score: 1 of the first 3 words are marks of other") == 1


def test_scorer_refuses_other_inputs(chars):
    for bad in ("the cat", ["the", 3], 7, ["the", ""], ["the cat sat"]):
        with pytest.raises(DataError, match="sentence 1"):
            list(chars.score([["the"], bad]))
        with pytest.raises(DataError, match="the sentence"):
            chars.substitutes(bad, 0)
    with pytest.raises(ValueError, match="n is 0"):
        chars.substitutes(["the"], 0, n=0)
    with pytest.raises(DataError, match="expected a list of sentences"):
        next(chars.score({("the", "cat")}))
    for words in (WORDS[1:], ["a", *WORDS[:8], *WORDS[9:]]):
        with pytest.raises(DataError, match="expected the 12 of the model"):
            scorer_of(model_of("chars"), words=words)
    with pytest.raises(ValueError, match="batch_tokens"):
        scorer_of(model_of("chars"), batch_tokens=0)
    with pytest.raises(DataError, match="no sentence"):
        perplexity_of(chars.score([]))
