"""Filling gaps: probabilities equal those of whole sentences; several gaps; lost letters."""

import json
import math
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from command_runs import assert_fails
from scorers import ATOL, MARKS, MODELS, WORDS, model_of, one, scorer_of
from tiny_runs import tiny_run

from bilm.errors import DataError
from bilm.scoring.scorer import PredictedWords
from bilm.studies.gaps.filling import PRIOR, Filler
from bilm.studies.gaps.fitting import fit_memory
from bilm.studies.gaps.letters import Letters
from bilm.studies.gaps.remembered_text import RememberedText
from bilm.support import Progress

PROPER = [word for word in dict.fromkeys(WORDS) if word not in ("", *MARKS)]


def warned(caplog):
    """Return the warnings of bilm; TensorFlow warns of retracing."""
    return [record.getMessage() for record in caplog.records if record.name == "absl"]


@pytest.fixture(scope="module", params=MODELS)
def scorer(request):
    return scorer_of(model_of(request.param))


def memory_of(n_directions):
    text = RememberedText.of([["the", "cat", "sat"], ["mat", "the", "cat"]], PredictedWords(WORDS))
    return fit_memory(text, n_directions, 1)


def compared(gap):
    """The probabilities of the words of a gap if it is one of them."""
    return {word: p / (1 - gap.none) for word, p in gap.candidates}


def by_brute_force(scorer, tokens, place, words, n_unknown=0):
    """The probability of each word from the scores of all sentences."""
    logs = []
    for word in words:
        totals = one(scorer, [*tokens[:place], word, *tokens[place + 1 :]]).total.values()
        unknown = math.log(n_unknown + 1) if word not in WORDS else 0
        logs.append(sum(totals) / len(totals) - unknown)
    total = sum(map(math.exp, logs))
    return {word: math.exp(log) / total for word, log in zip(words, logs, strict=True)}


def test_fill_equals_the_probabilities_of_whole_sentences(scorer):
    tokens = ["the", "[MASK]", "sat", "unheard"]
    (gap,) = Filler(scorer).fill(tokens, 100)
    assert gap[:2] == (1, "[MASK]")
    expected = by_brute_force(scorer, tokens, 1, PROPER)
    assert compared(gap) == pytest.approx(expected, rel=20 * ATOL)
    values = [p for _, p in gap.candidates]
    assert values == sorted(values, reverse=True) and sum(values) == pytest.approx(1 - gap.none)
    assert Filler(scorer).fill(tokens, 2)[0].candidates == gap.candidates[:2]
    assert Filler(scorer).fill(["the", "cat"]) == Filler(scorer).fill([]) == []


def test_fill_compares_other_words_by_their_share_of_unk(scorer):
    tokens = ["[?]", "cat"]
    (gap,) = Filler(scorer, ["dog", "cat", "emu", "dog"]).fill(tokens, 100, mask="[?]")
    expected = by_brute_force(scorer, tokens, 0, [*PROPER, "dog", "emu"], n_unknown=2)
    assert compared(gap) == pytest.approx(expected, rel=20 * ATOL)


def test_fill_compares_other_words_if_more_words_match_than_are_compared(monkeypatch):
    monkeypatch.setattr("bilm.studies.gaps.filling.N_COMPARED", 3)
    scorer = scorer_of(model_of("words"))
    logs = next(scorer.log_probabilities(["the", "cat"], [0]))
    best = np.argsort(-scorer.vocabulary.both_sides(logs, has_unknown=True))[:4]
    assert WORDS.index("<UNK>") in best  # a likely place of an unknown word
    (gap,) = Filler(scorer, ["emu"]).fill(["[MASK]", "cat"], 3)
    assert "emu" in dict(gap.candidates)


def test_fill_compares_all_words_that_tie_with_the_last(monkeypatch, caplog):
    monkeypatch.setattr("bilm.studies.gaps.filling.N_COMPARED", 3)
    scorer = scorer_of(model_of("chars"))
    names = ["emu", "eft", "elk", "eel", "ewe"]
    tokens = ["the", "e[..]", "sat"]
    (gap,) = Filler(scorer, names).fill(tokens)
    expected = by_brute_force(scorer, tokens, 1, sorted(names), n_unknown=5)
    assert compared(gap) == pytest.approx(expected, rel=20 * ATOL)
    assert Filler(scorer, names).fill(tokens, 2)[0].candidates == gap.candidates[:2]
    assert warned(caplog) == []

    monkeypatch.setattr("bilm.studies.gaps.filling.MAX_COMPARED", 4)
    (gap,) = Filler(scorer, names).fill(tokens, 4)
    assert {word for word, _ in gap.candidates} == {"eel", "eft", "elk", "emu"}
    (message,) = warned(caplog)
    assert message.startswith("ewe: not compared, although as likely by both sides of a gap")


def test_fill_warns_of_equally_probable_words(caplog):
    scorer = scorer_of(model_of("words"))
    filler = Filler(scorer, ["emu", "elk"])
    filler.fill(["the", "e[..]"], 1)
    (message,) = warned(caplog)
    assert message.startswith("e[..]: some of the best words are equally probable")
    assert filler.counts["gaps with equally probable words"] == 1


def test_fill_warns_of_tokens_that_look_like_gaps_and_of_gaps_without_words(scorer, caplog):
    assert Filler(scorer).fill(["the", "<mask>", "sat"]) == []
    assert Filler(scorer).fill(["the", "ca[.],", "[mask]", "[MASK]."]) == [(1, "ca[.],", [], 1.0)]
    assert [message.split(":")[0] for message in warned(caplog)] == [
        "<mask>", "ca[.],", "[mask]", "[MASK]."
    ]  # fmt: skip
    assert "not read as a gap" in warned(caplog)[0] and "no word of" in warned(caplog)[1]
    is_advised = ["separate punctuation" in message for message in warned(caplog)]
    assert is_advised == [False, True, False, True]

    caplog.clear()
    filler = Filler(scorer)
    for _ in range(9):
        filler.fill(["the", "____", "sat"])
    assert filler.counts["tokens that look like gaps, but are not"] == 9
    assert len(warned(caplog)) == 3


def test_fill_does_not_warn_that_the_compared_sentences_are_alike(caplog):
    Filler(scorer_of(model_of("words"))).fill(["the", "cat", "sat", "[MASK]"])
    assert warned(caplog) == []


def test_fill_with_a_memory_multiplies_powers(scorer):
    n_directions = len(scorer.directions)
    memory = memory_of(n_directions)
    exponents = [0.1, 0.5, 0.3, 0.4, -0.55]
    tokens = ["the", "[MASK]", "sat"]
    logs = []
    for word in PROPER:
        totals = sum(one(scorer, ["the", word, "sat"]).total.values())
        recalled = memory.log_probabilities(["the", "<UNK>", "sat"], 1).values()
        (word_id,) = scorer.vocabulary.known_ids([word])
        of_memory = [by_word[word_id] for by_word in recalled]
        logs.append(exponents[0] * totals + np.dot(of_memory, exponents[-4:]))
    expected = np.exp(logs - np.logaddexp.reduce(logs))
    powers = np.array([0.1] * (n_directions - 1) + exponents)
    (gap,) = Filler(scorer, memory=replace(memory, exponents=powers)).fill(tokens, 100)
    assert compared(gap) == pytest.approx(dict(zip(PROPER, expected, strict=True)), rel=20 * ATOL)


def test_fit_maximizes_the_probability_of_held_out_words(scorer):
    n_directions = len(scorer.directions)
    memory = memory_of(n_directions)
    prior = np.array([0.6 / n_directions] * n_directions + [0.2] * 4)
    filler = Filler(scorer, memory=replace(memory, exponents=prior))
    heldout = [["the", "cat"], ["the", "unheard", "mat"]]
    bar = Progress("fitting", "words")
    unchanged, doubt_of_unknown = filler.fit([["unheard"]], 9, bar, 1)  # not among the candidates
    np.testing.assert_allclose(unchanged, prior)
    found, doubt = filler.fit(heldout, 9, bar, 1)
    assert doubt[0] < doubt_of_unknown[0]

    def objective(exponents):
        filler = Filler(scorer, memory=replace(memory, exponents=exponents))
        of_unheard = (["[MASK]", "unheard", "mat"], "the"), (["the", "unheard", "[MASK]"], "mat")
        gaps = [(["[MASK]", "cat"], "the"), (["the", "[MASK]"], "cat"), *of_unheard]
        logs = [math.log(compared(filler.fill(words, 100)[0])[word]) for words, word in gaps]
        return sum(logs) - PRIOR * len(gaps) / 2 * np.sum((exponents - prior) ** 2)

    best = objective(found)
    for step in 0.05 * np.eye(len(found)):
        assert max(objective(found + step), objective(found - step)) < best


def test_fill_starts_with_the_surest_of_several_gaps(scorer):
    tokens = ["[MASK]", "sat", "[---]t", "[MASK]"]
    found = Filler(scorer).fill(tokens, 100)
    assert [gap.position for gap in found] == [0, 2, 3]
    text, left = ["<UNK>", "sat", "<UNK>", "<UNK>"], [0, 2, 3]
    allowed = {0: PROPER, 2: [word for word in PROPER if word[1:].endswith("t")], 3: PROPER}

    def best(place):
        one_gap = [*text[:place], tokens[place], *text[place + 1 :]]
        return Filler(scorer).fill(one_gap, 1)[0].candidates[0]

    while left:
        place = max(left, key=lambda i: best(i).probability)
        text[place] = best(place).word
        left.remove(place)
    for gap in found:
        expected = by_brute_force(scorer, text, gap.position, allowed[gap.position])
        assert compared(gap) == pytest.approx(expected, rel=50 * ATOL)


def test_fill_without_a_matching_word_has_no_candidates(scorer):
    unmatched, other = Filler(scorer).fill(["xx[.]", "[MASK]"], 1)
    assert unmatched == (0, "xx[.]", [], 1.0) and len(other.candidates) == 1


def test_fill_says_how_probable_other_words_are(scorer):
    tokens = ["the", "[MASK]", "sat"]
    logs = next(scorer.log_probabilities(tokens, [1]))
    unknown = np.exp(scorer.vocabulary.both_sides(logs, has_unknown=True)[WORDS.index("<UNK>")])
    (gap,) = Filler(scorer).fill(tokens)
    assert gap.none == pytest.approx(unknown, rel=1e-4)
    filler = Filler(scorer, ["xxy", "xyz"])
    rest = unknown / 3  # for words that are not in the list
    assert filler.fill(tokens)[0].none == pytest.approx(rest, rel=1e-4)
    (gap,) = filler.fill(["the", "xx[.]", "sat"])  # a list of one word is not certain
    of_letters = rest * np.exp(Letters(filler.words).log_match(["xx", 1, ""]))
    assert gap.none == pytest.approx(of_letters / (of_letters + unknown / 3), rel=1e-4)
    assert gap.candidates == [("xxy", pytest.approx(1 - gap.none))]


def test_letters_predict_the_words_that_match_a_gap():
    letters = Letters(["ab", "ba", "abc"])

    def p(*pieces):
        return np.exp(letters.log_match(pieces))

    one = [p(letter) for letter in ("a", "b", "c", "?")]
    assert p("", 1, "") == pytest.approx(sum(one)) and one[3] == min(one)
    assert p("", 0, "") == pytest.approx(1)
    assert p("a", 0, "b") == pytest.approx(sum(p("a", n, "b") for n in range(1, 300)))
    assert p("ba") > p("ca")


def test_fill_offers_no_gap_marks_and_no_second_form_of_a_word(scorer):
    """An edition whose gaps are marked may be training text or a list of words."""
    words = ["[MASK]", "[..]", "x[.]", "[?]", "re\u0301g", "r\u00e9g"]
    (gap,) = Filler(scorer, words).fill(["[?]"], 100, mask="[?]")
    assert {word for word, _ in gap.candidates} - {*PROPER} <= {"re\u0301g", "r\u00e9g"}
    vocabulary = PredictedWords([*WORDS, "re\u0301g"])
    filler = Filler(SimpleNamespace(vocabulary=vocabulary, directions=("forward",)), words[3:])
    assert set(filler.words) == {*PROPER, "re\u0301g", "[?]"}


def test_fill_refuses_invalid_arguments(scorer):
    for n in (0, 1_001):
        with pytest.raises(ValueError, match=f"n is {n}, expected 1 to 1000"):
            Filler(scorer).fill(["[MASK]"], n)
    with pytest.raises(DataError, match="the sentence is 'a \\[MASK\\]'"):
        Filler(scorer).fill("a [MASK]")


def test_filler_refuses_a_memory_fitted_to_other_directions(scorer):
    memory = memory_of(3 - len(scorer.directions))
    with pytest.raises(DataError, match="directions of the model"):
        Filler(scorer, memory=memory)


def test_fill_command_writes_table_json_and_text(run_here, tmp_path):
    text, more = tmp_path / "text", tmp_path / "more"
    text.write_text("w1 [MASK] w2\n\nw1 [w3]\nqq[.] w[.]\n\n\nzz[.]\n\n", encoding="utf-8")
    more.write_text("qqa qqb\nqqcc\n", encoding="utf-8")
    arguments = ["--model", tiny_run("words"), "--input", text, "--words", more, "--n", "2"]
    done = run_here("bilm fill", *arguments)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert {
        "gaps: 4", "gaps without a candidate: 1", "tokens that look like gaps, but are not: 1",
    } <= {*done.stderr.splitlines()}  # fmt: skip
    assert "zz[.]: no word of the vocabulary" in done.stderr and "[w3]: not read" in done.stderr
    assert rows[0] == ["sentence", "position", "gap", "rank", "word", "probability", "none"]
    places = [("0", "1", "[MASK]"), ("3", "0", "qq[.]"), ("3", "1", "w[.]")]
    assert [tuple(row[:4]) for row in rows[1:]] == [(*p, r) for p, r in product(places, "12")]
    assert {row[4] for row in rows[3:5]} == {"qqa", "qqb"}
    done = run_here("bilm fill", *arguments, "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [gap["token"] for gap in found] == ["[MASK]", "qq[.]", "w[.]", "zz[.]"]
    assert [word for gap in found for word, _ in gap["candidates"]] == [row[4] for row in rows[1:]]
    done = run_here("bilm fill", *arguments, "--restored")
    filled = f"w1 {rows[1][4]} w2\n\nw1 [w3]\n{rows[3][4]} {rows[5][4]}\n\n\nzz[.]\n\n"
    assert done.stdout == filled  # blank lines are kept
    done = run_here("bilm fill", *arguments, "--json", "--restored")
    assert done.returncode == 2 and "mutually exclusive" in done.stderr
    listed = more.rename(tmp_path / "more.csv")
    arguments = ["--model", tiny_run("words"), "--input", text, "--words", listed]
    assert_fails(run_here("bilm fill", *arguments, "--output", listed), "is also an input")


def test_fill_command_restores_every_line_of_every_file(run_here, tmp_path):
    for name, content in {"a": "\n\nw1\n\n", "b": "\nw2 w3\n", "c": "\n"}.items():
        (tmp_path / f"{name}.txt").write_text(content, encoding="utf-8")
    arguments = ["--model", tiny_run("words"), "--input", tmp_path / "*.txt"]
    done = run_here("bilm fill", *arguments, "--restored")
    assert done.stdout == "\n\nw1\n\n\nw2 w3\n\n"
    assert "gaps: 0, expected a token [MASK]" in done.stderr


def test_fill_command_reads_marks_of_editors_with_blanks(run_here, tmp_path):
    (text := tmp_path / "text").write_text("w1 w[. .] [— — —] (w2)\n", encoding="utf-8")
    done = run_here("bilm fill", "--model", tiny_run("words"), "--input", text, "--json")
    gaps = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(gap["position"], gap["token"]) for gap in gaps] == [(1, "w[. .]"), (2, "[— — —]")]
    done = run_here("bilm fill", "--model", tiny_run("words"), "--input", text, "--mask", "")
    assert_fails(done, "the mark is ''; expected a word, such as")
