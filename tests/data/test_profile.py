"""The profile of a text: its numbers, differences from a model's text, and the labelled texts."""

import json
import sys
from pathlib import Path

import pytest

from bilm.data.profile import Profile

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import texts

SENTENCES = [line.split() for line in ["The old cat sleeps , and 2 dogs run .", "Él ran ."] * 10]


def test_shares_of_words_survive_json():
    profile = Profile.of(SENTENCES)
    shares = {"separate": 3, "digits": 1, "capitalized": 2, "accents": 1, "Latin": 9}
    assert {name: profile.share(name) for name in shares} == {
        name: n / 13 for name, n in shares.items()
    }
    stored = Profile.from_record(json.loads(json.dumps(profile._asdict())))
    assert stored == profile._replace(examples={})
    assert profile.table()["10 of the first 130 words contain digits, such as '2'"] == "7.7 %"
    once = Profile.of([["a", "2"]]).table()
    assert once["2 of the first 2 words occur once, such as 'a', '2'"] == "100 %"


@pytest.mark.parametrize("record", [None, [], {}, {"counts": {"x": "y"}}, {"counts": {}}])
def test_a_damaged_record_is_no_profile(record):
    assert Profile.from_record(record) is None


def test_differences_name_shares_and_words():
    model = Profile.of(SENTENCES)
    words = {word for sentence in SENTENCES for word in sentence}
    upper = [[word.upper() for word in sentence] for sentence in SENTENCES]
    found = Profile.of(upper, vocabulary=words).warnings(model)
    assert found.keys() == {"unknown", "model"}
    assert found["unknown"].startswith(
        "90 of the first 130 words are not in the vocabulary (69 %, 0 % in the text of the model), "
    )
    assert "90 of the first 130 words are in capitals (69 %, 0 %" in found["model"]
    assert Profile.of(SENTENCES, vocabulary=words).warnings(model) == {}
    assert Profile.of(upper[:2], vocabulary=words).warnings(model) == {}  # too few words
    long = Profile.of([words * 3 for words in SENTENCES])
    assert "19.5 words of a sentence, 6.5 in the text of the model" in long.warnings(model)["model"]
    assert model.warnings(long) == {}  # short sentences


def test_faulty_texts_are_found_and_clean_ones_are_not():
    found = [bool(texts.warnings_of(content, model)) for *_, content, model in texts.faulty_texts()]
    assert len(found) >= 270 and sum(found) >= 0.93 * len(found)
    clean = texts.clean_texts()
    assert len(clean) >= 50
    assert {name: texts.warnings_of(text.encode()) for name, text in clean.items()} == {
        name: [] for name in clean
    }


@pytest.mark.parametrize(
    ("fault", "remedy"),
    [
        ("zero width: km", "replace it with a blank"),
        ("JSON: en", "end with .jsonl"),
        ("CSV: en", "end with .csv"),
        ("marks: ar", "invisible characters"),
        ("FASTA: letters", "end with .fasta"),
        ("CoNLL: en", "end with .conllu"),
        ("BPE: en", "before it was split"),
        ("cp1251: ru", "in its own encoding"),
    ],
)
def test_the_remedy_is_right_for_the_fault(fault, remedy):
    (content,) = [content for _, name, content, _ in texts.faulty_texts() if name == fault]
    assert any(remedy in warning for warning in texts.warnings_of(content))
