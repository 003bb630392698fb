"""`bilm minimal-pairs`: table for people, JSON, tables of groups and of pairs."""

import json
import re

import pytest
from command_runs import assert_fails, rows_of
from tiny_runs import tiny_run

import bilm

PAIRS = [
    ("w1 w2 w3", "w3 w2 w1", "order", "reversed"),
    ("w1 w2", "w2 w1", "order", "reversed"),
    ("w1 w2 w4", "w1 w4 w2", "order", "swapped"),
    ("w1 blick", "w1 wug", "lexicon", "nonce"),
]
KEYS = ("sentence_good", "sentence_bad", "linguistics_term", "UID")
LOG2 = 0.6931471805599453


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    lines = (json.dumps(dict(zip(KEYS, pair, strict=True))) for pair in PAIRS)
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def measured(run_here, pairs):
    """Return a function that runs the command and returns what it prints."""

    def measure(*more, model="words", source=pairs):
        done = run_here("bilm minimal-pairs", "--model", tiny_run(model), "--input", source, *more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return measure


def differences(model):
    """Return the difference of the log-probabilities of each pair in bits, by direction."""
    scorer = bilm.load_scorer(tiny_run(model))
    totals = [s.total for s in scorer.score(text.split() for p in PAIRS for text in p[:2])]
    for good, bad in zip(totals[::2], totals[1::2], strict=True):
        found = {name: (good[name] - bad[name]) / LOG2 for name in good}
        yield found | ({"both": sum(found.values())} if len(found) == 2 else {})


def groups(text):
    rows = json.loads(text)["groups"]
    return {row["UID"] or row["linguistics_term"] or row["group"]: row for row in rows}


@pytest.mark.parametrize("model", ["words", "characters", "forward_only"])
def test_accuracy_of_minimal_pairs_follows_from_the_scores(measured, model):
    found = groups(measured("--json", model=model))
    bits = list(differences(model))
    for d in ("forward", "backward", "both"):
        correct = [each[d] > 1e-4 for each in bits if d in each]
        assert found["overall"][d] == (25 * sum(correct) if correct else None)
        assert found["overall"][f"{d}_ties"] == sum(abs(each.get(d, 9)) <= 1e-4 for each in bits)
        assert found["swapped"][d] == (100 * correct[2] if correct else None)
    assert [found[name]["pairs"] for name in ("overall", "known", "order")] == [4, 3, 3]
    assert found["overall"]["unknown_pairs"] == 1
    if model == "words":
        assert [found["lexicon"][f"{d}_ties"] for d in ("forward", "backward", "both")] == [1, 1, 1]


def test_table_of_minimal_pairs_for_people(measured):
    head, _, *lines = [line for line in measured().splitlines() if line.strip()]
    assert " ".join(head.split()) == "accuracy in % pairs forward backward both ties unknown"
    assert [re.split(r"  +\d", line)[0].strip() for line in lines] == [
        "order", "reversed", "swapped", "lexicon", "nonce", "without unknown words", "overall",
    ]  # fmt: skip
    found = groups(measured("--json"))["overall"]
    expected = [f"{found[name]:g}" for name in ("forward", "backward", "both")]
    assert lines[-1].split() == ["overall", "4", *expected, "1", "1"]
    forward_only = [line for line in measured(model="forward_only").splitlines() if line.strip()]
    assert forward_only[-1].split()[3:5] == ["-", "-"]


def test_minimal_pairs_in_a_file_are_groups_or_pairs(measured, tmp_path):
    out = tmp_path / "out.csv"
    assert measured("--output", out) == measured()
    rows = rows_of(out.read_text(), ",")
    assert [(row["group"], row["linguistics_term"], row["UID"]) for row in rows] == [
        ("phenomenon", "order", ""), ("UID", "order", "reversed"), ("UID", "order", "swapped"),
        ("phenomenon", "lexicon", ""), ("UID", "lexicon", "nonce"),
        ("known", "", ""), ("overall", "", ""),
    ]  # fmt: skip
    assert (rows[-1]["pairs"], rows[-1]["unknown_pairs"], rows[-1]["both_ties"]) == ("4", "1", "1")
    measured("--output", out, "--per_pair")
    rows = rows_of(out.read_text(), ",")
    for number, (row, pair, bits) in enumerate(zip(rows, PAIRS, differences("words"), strict=True)):
        assert row["pair"] == str(number)
        assert tuple(row[name] for name in KEYS) == pair
        assert {d: float(row[d]) for d in bits} == pytest.approx(bits, rel=1e-4, abs=1e-5)
    assert rows[-1]["unknown"] == "blick wug"


def test_minimal_pairs_of_several_files(measured, pairs):
    (pairs.parent / "more.jsonl").write_text(pairs.read_text())
    found = groups(measured("--json", source=pairs.parent / "*.jsonl"))
    assert (found["overall"]["pairs"], found["order"]["pairs"]) == (8, 6)


def test_minimal_pairs_errors_are_one_line(run_here, pairs, tmp_path):
    command = ["bilm minimal-pairs", "--model", tiny_run("words"), "--input"]
    done = run_here(*command, pairs, "--per_pair")
    assert_fails(done, "when --per_pair is set, --output is required", status=2)
    done = run_here(*command, pairs, "--output", pairs)
    assert_fails(done, "expected the ending .csv or .tsv", status=2)
    (tmp_path / "empty.jsonl").touch()
    assert_fails(run_here(*command, tmp_path / "empty.jsonl"), "found no pairs")
    assert_fails(run_here(*command, tmp_path / "none"), "no file matches")
