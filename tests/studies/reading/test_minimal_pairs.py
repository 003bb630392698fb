"""Minimal pairs: preferences equal those of `Scorer`, ties and unknown words are counted."""

import gzip
import json

import numpy as np
import pytest
from scorers import ATOL, model_of, one, scorer_of

from bilm.errors import DataError
from bilm.studies.reading import MinimalPair, PairResults, PairScore, read_pairs, score_pairs
from bilm.studies.reading.minimal_pairs import TIE

PAIR = {
    "sentence_good": "the cat sat", "sentence_bad": "the sat cat", "linguistics_term": "order",
    "UID": "swap", "pairID": "0",
}  # fmt: skip


def pair(good, bad, phenomenon="order", uid="swap"):
    return MinimalPair(good.split(), bad.split(), phenomenon, uid)


def scored(preference, unknown=(), phenomenon="order", uid="swap"):
    both = {"forward": preference, "backward": -preference, "both": 0.0}
    return PairScore(pair("a", "b", phenomenon, uid), both, list(unknown))


def test_preference_is_the_difference_of_log_probabilities_in_bits():
    scorer = scorer_of(model_of("chars"))
    pairs = [pair("the cat sat", "the sat cat"), pair("on the mat", "on mat")]
    for found, (good, bad, *_) in zip(score_pairs(scorer, pairs), pairs, strict=True):
        expected = {
            name: (one(scorer, good).total[name] - one(scorer, bad).total[name]) / np.log(2)
            for name in ("forward", "backward")
        }
        expected["both"] = sum(expected.values())
        assert found.preference == pytest.approx(expected, abs=20 * ATOL)
        assert abs(expected["forward"]) > 0.1 and found.unknown == []


def test_sentences_that_a_word_model_cannot_tell_apart_are_ties():
    scorer = scorer_of(model_of("words"))
    others = [pair("the " * n, "mat " * n) for n in range(1, 30)]
    pairs = [*others, pair("the wug sat", "the dax sat"), *others]
    results = PairResults.of(score_pairs(scorer, pairs))
    assert results.overall.n_ties == {"forward": 1, "backward": 1, "both": 1}
    assert results.overall.n_unknown == 1


def test_accuracy_counts_ties_as_wrong_and_groups_by_phenomenon_and_uid():
    pairs = scored(3.0), scored(-2.0, ["wug"], uid="other"), scored(TIE / 2)
    results = PairResults.of([*pairs, scored(1.0, phenomenon="agreement")])
    overall = results.overall
    assert (overall.n_pairs, overall.n_unknown) == (4, 1)
    assert overall.percent == {"forward": 50.0, "backward": 25.0, "both": 0.0}
    assert overall.n_ties == {"forward": 1, "backward": 1, "both": 4}
    assert results.known.n_pairs == 3 and results.known.n_unknown == 0
    n_pairs = {name: each.n_pairs for name, each in results.phenomena.items()}
    assert n_pairs == {"order": 3, "agreement": 1}
    percent = {" ".join(key): each.percent["forward"] for key, each in results.uids.items()}
    assert percent == {"order swap": 50.0, "order other": 0.0, "agreement swap": 100.0}


def test_pairs_are_read_from_json_lines_csv_and_tsv(tmp_path):
    header = ",".join(PAIR)
    files = {
        "a.jsonl": json.dumps(PAIR) + "\n",
        "a.csv": f"{header}\n{','.join(PAIR.values())}\n",
        "a.tsv": f"{header}\n{','.join(PAIR.values())}\n".replace(",", "\t"),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        assert list(read_pairs(tmp_path / name)) == [pair("the cat sat", "the sat cat")]
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write(json.dumps(PAIR | {"sentence_good": ["the", "cat", "sat"]}))
    assert list(read_pairs(tmp_path / "b.jsonl.gz")) == [pair("the cat sat", "the sat cat")]


BLANK = PAIR | {"sentence_bad": " "}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.txt", "the cat", "expected a table of minimal pairs, whose name ends with one of .csv"),
        ("a.jsonl", '{"UID": "a"}', "line 1: column 'sentence_good' is missing; found 'UID'"),
        ("a.jsonl", "\n".join(map(json.dumps, (PAIR, BLANK))), "line 2: sentence_bad contains no"),
    ],
)
def test_pairs_that_cannot_be_read_are_one_line(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=f"{tmp_path}/{name}.*{expected}"):
        list(read_pairs(tmp_path / name))
