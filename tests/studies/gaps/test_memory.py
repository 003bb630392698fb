"""The memory of a text equals a computation word by word; fits; files; commands."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from command_runs import assert_fails, rows_of, succeeded
from tiny_runs import HELDOUT, TEXT, VARIANTS, run, tiny_run

from bilm import load_scorer
from bilm.data.shards import resolve_shards, sentence_digest
from bilm.errors import DataError, WeightsError
from bilm.export.hdf5 import dump_weights
from bilm.scoring.scorer import PredictedWords
from bilm.scoring.scores import Score
from bilm.storage.hdf5 import save_hdf5
from bilm.storage.stored_model import open_model
from bilm.studies.gaps import fitting
from bilm.studies.gaps.fitting import fit_memory, fit_shares, log_gradient
from bilm.studies.gaps.memory import FLOOR, Memory
from bilm.studies.gaps.remembered_text import AFFIXES, OFFSETS, RememberedText

WORDS = ["<S>", "</S>", "<UNK>", "walked", "talked", "walks", "a", "cat", "rat", "the", "dog"]
TEXT_ = [line.split() for line in (
    "the cat walked", "a rat talked the dog", "", "the unheard walks a cat", "walked the cat",
    "the rat walked the cat", "a dog talked a dog",
)]  # fmt: skip


def fitted(text):
    return fit_memory(RememberedText.of(text, PredictedWords(WORDS)), 2, 3)


@pytest.fixture
def memory():
    return fitted(TEXT_)


def by_hand(memory, view, tokens, place, text):
    """P(w | context) from dictionaries, for a place counted from -1, the mark of the start."""
    known = [[w if w in WORDS else "<UNK>" for w in s] for s in text]
    counts = {w: 0.5 for w in WORDS}
    for sentence in known:
        for w in ["<S>", *sentence, "</S>"]:
            counts[w] += 1
    total = sum(counts.values())
    weights = memory.weights[view]

    def phi(v, w):
        if "<UNK>" in (v, w) or None in (v, w):
            return np.zeros(5)
        is_mark = v in ("<S>", "</S>")
        affixes = [not is_mark and v[a] == w[a] for a in AFFIXES]
        return np.array([v == w, (v == w) * math.log(total / counts[v]) / 10, *affixes])

    def at(sentence, i):
        marked = {-1: "<S>", len(sentence): "</S>"}
        return marked.get(i, sentence[i] if 0 <= i < len(sentence) else None)

    tokens = [w if w in WORDS else "<UNK>" for w in tokens]
    left, right = tokens[: max(place, 0)], tokens[place + 1 :]
    bag = {"forward": left, "backward": right, "both": left + right}[view]
    places = {"forward": (0, 1), "backward": (-1, 0), "both": (0, 0)}[view]
    sums = dict.fromkeys(WORDS, 0.0)
    for sentence in known:
        marked = ["<S>", *sentence, "</S>"]
        pairs = sum((phi(v, w) for v in set(bag) for w in marked), np.zeros(5))
        for i in range(places[0], len(sentence) + places[1]):
            s = weights[-1] @ pairs
            for k, row in zip(OFFSETS[view], weights, strict=False):
                s += row @ phi(at(tokens, place + k), at(sentence, i + k))
            sums[at(sentence, i)] += math.exp(s)
    everything = sum(sums.values())
    found = {w: (1 - FLOOR) * sums[w] / everything + FLOOR * counts[w] / total for w in WORDS}
    is_whole = counts["<UNK>"] == 0.5
    for word in (word for word in WORDS if is_whole and counts[word] == 1.5):  # once, and 0.5
        found[word] /= 2
        found["<UNK>"] += found[word]
    return list(found.values())


@pytest.mark.parametrize("view", OFFSETS)
@pytest.mark.parametrize("text", [TEXT_, TEXT_[:3]], ids=["with <UNK>", "without"])
def test_memory_equals_a_computation_word_by_word(view, text):
    memory = fitted(text)
    for tokens in (["the", "cat", "walked", "a", "dog"], ["rat"], ["the", "unheard", "odd"]):
        marked = memory.text.vocabulary.encode(tokens)
        first, last = {"forward": (0, 1), "backward": (-1, 0), "both": (0, 0)}[view]
        for place in range(first, len(tokens) + last):
            found = memory.probabilities(view, marked, place + 1)
            assert found.sum() == pytest.approx(1)
            np.testing.assert_allclose(found, by_hand(memory, view, tokens, place, text), rtol=1e-4)


@pytest.mark.parametrize("view", OFFSETS)
def test_memory_gradient_equals_differences_and_leaves_out_the_own_sentence(memory, view):
    weights, others = memory.weights[view], memory.text.ids[memory.text.sentence != 3]
    place = memory.text.starts[3] + 4  # "a" of the fourth sentence

    def log(changed):
        text = RememberedText(others, memory.text.vocabulary)
        text.frequencies, text.is_rare = memory.text.frequencies, memory.text.is_rare
        without = replace(memory, text=text, weights={view: changed})
        marked = text.vocabulary.encode(TEXT_[3])
        return math.log(without.probabilities(view, marked, 4)[WORDS.index("a")])

    found = log_gradient(memory.text, view, weights, place)
    for index in np.ndindex(weights.shape):
        step = np.zeros_like(weights)
        step[index] = 0.01
        expected = (log(weights + step) - log(weights - step)) / 0.02
        assert found[index] == pytest.approx(expected, abs=2e-3)


def fit_to(memory, scores):
    """Return a memory whose shares are fitted to scored sentences."""
    recalled = [memory.sentence_log_probabilities(score.tokens, score.logs) for score in scores]
    return replace(memory, shares=fit_shares(list(zip(scores, recalled, strict=True))))


def test_memory_fits_shares(memory):
    logs = {"forward": np.log([0.5, 0.5, 0.9]), "backward": np.log([1e-9, 1e-9, 1e-9])}
    score = Score(logs["forward"], logs["backward"], ["the", "cat"], np.ones(3, bool))
    memory = fit_to(memory, [score])
    shares = memory.shares
    recalled = np.exp(memory.sentence_log_probabilities(["the", "cat"], logs)["forward"])

    def likelihood(share):
        return np.log(share * np.exp(logs["forward"]) + (1 - share) * recalled).sum()

    grid = np.linspace(0.001, 0.999, 500)
    assert likelihood(shares[0]) > max(map(likelihood, grid)) - 0.02 and shares[1] < 0.01
    mixed = memory.mixed(score).forward
    expected = shares[0] * np.exp(logs["forward"]) + (1 - shares[0]) * recalled
    np.testing.assert_allclose(np.exp(mixed), expected, rtol=1e-5)
    memory = fit_to(memory, [score._replace(backward=None)])  # a forward-only model
    assert memory.shares == pytest.approx(shares[:1])
    with pytest.raises(DataError, match="directions of the model: 2; expected 1"):
        memory.mixed(score)


def test_memory_of_a_part_of_a_long_text(memory, monkeypatch):
    monkeypatch.setattr(fitting, "MAX_FITTED", int(memory.text.starts[3]) + 4)  # within a sentence
    found = fitted(TEXT_)
    assert len(found.text.ids) == len(memory.text.ids)
    assert all(np.isfinite(weights).all() for weights in found.weights.values())
    for n in (0, 1):  # nothing is left without the own sentence
        with pytest.raises(DataError, match=f"sentences with words: {n}; expected 2 or more"):
            fitted([*TEXT_[:n], [], []])


def test_memory_file(memory, tmp_path):
    fits = {"exponents": np.linspace(0, 1, 6), "doubt": np.array([0.1, 0.9])}
    model, other = (SimpleNamespace(weights_digest=digest) for digest in ("aa", "bb"))
    replace(memory, **fits).save(tmp_path / "memory.hdf5", model)
    found = Memory.load(tmp_path / "memory.hdf5", model, WORDS)
    a, b = (m.log_probabilities(["the", "cat"], 1) for m in (memory, found))
    np.testing.assert_equal(a, b)
    np.testing.assert_array_equal(found.shares, memory.shares)
    np.testing.assert_equal({name: getattr(found, name) for name in fits}, fits)
    expected = {sentence_digest(words) for words in TEXT_ if words}
    assert found.text.digests == memory.text.digests == expected
    for refused in ((model, [*WORDS, "more"]), (other, WORDS)):
        with pytest.raises(DataError, match="memory of another model, whose weights or vocab"):
            Memory.load(tmp_path / "memory.hdf5", *refused)
    (tmp_path / "text").write_text("words")
    save_hdf5(tmp_path / "other", {"text": np.zeros(3)})
    content = (tmp_path / "memory.hdf5").read_bytes()
    (tmp_path / "half").write_bytes(content[: len(content) // 2])
    reasons = {"text": "not a whole", "half": "not a whole", "other": "the dataset `both` is mis"}
    for name, reason in reasons.items():
        with pytest.raises(WeightsError, match=f"{name}: {reason}"):
            Memory.load(tmp_path / name, model, WORDS)


def test_memory_leaves_out_heldout_sentences_that_it_contains(run_here, tmp_path):
    honest = [" ".join(words) for words in resolve_shards(HELDOUT).sentences()]
    copied = [" ".join(words) for words in resolve_shards(TEXT).sentences() if len(words) > 2]
    (tmp_path / "mixed").write_text("\n".join(copied[:5] + honest), encoding="utf-8")
    (tmp_path / "honest").write_text("\n".join(honest), encoding="utf-8")
    (tmp_path / "copies").write_text("\n".join(copied[:5]), encoding="utf-8")
    model = ["--model", tiny_run("words")]

    def write(name):
        heldout = ["--heldout", tmp_path / name, "--output", tmp_path / f"{name}.hdf5"]
        return run_here("bilm memory", *model, "--input", TEXT, *heldout, "--hours", "0")

    expected, mixed, copies = map(write, ("honest", "mixed", "copies"))
    figures = [done.stdout.split("UNKNOWN")[0] for done in (mixed, expected)]
    assert figures[0] == figures[1] and "contains" not in expected.stderr
    assert "contains 5 of the 35 sentences; with them, perplexity is " in mixed.stderr
    assert "contains 5 of the 5 sentences; " in copies.stderr and "use other" in copies.stderr
    with h5py.File(tmp_path / "copies.hdf5") as file:
        np.testing.assert_array_equal(file["shares"], [0.5, 0.5])
    with h5py.File(tmp_path / "mixed.hdf5") as file, h5py.File(tmp_path / "honest.hdf5") as other:
        np.testing.assert_array_equal(file["shares"], other["shares"])
        np.testing.assert_array_equal(file["exponents"], other["exponents"])

    def test(text, command="bilm test", *more):
        memory = ["--memory", tmp_path / "mixed.hdf5"]
        return run_here(command, *model, "--input", text, *memory, *more)

    figures = [test(text, "bilm test", "--stateless") for text in (HELDOUT, tmp_path / "mixed")]
    assert figures[0].stdout == figures[1].stdout and "5 of the 35" in figures[1].stderr
    logs = [test(text, "bilm score").stderr for text in (HELDOUT, tmp_path / "mixed")]
    assert logs[0] in logs[1] and "mixed: the text of the memory contains 5 of" in logs[1]


def test_memory_does_not_remember_the_part_that_its_run_held_out(run_here, tmp_path):
    run = shutil.copytree(tiny_run("words"), tmp_path / "run")
    copied = [words for words in resolve_shards(TEXT).sentences() if len(words) > 2][:5]
    (run / "heldout.txt").write_text("\n".join(map(" ".join, copied)), encoding="utf-8")
    files = ["--input", TEXT, "--output", tmp_path / "memory.hdf5"]
    done = run_here("bilm memory", "--model", run, *files, "--hours", "0")
    assert done.returncode == 0 and "contains" not in done.stderr
    model = open_model(run)
    stored = Memory.load(tmp_path / "memory.hdf5", model, model.vocabulary().words)
    assert stored.text.digests.isdisjoint(map(sentence_digest, copied))


def test_memory_of_another_model_is_refused(run_here, tmp_path):
    model, file, text = tiny_run("words"), tmp_path / "memory.hdf5", ["--input", HELDOUT]
    arguments = ["--input", TEXT, "--heldout", HELDOUT, "--output", file, "--hours", "0"]
    assert run_here("bilm memory", "--model", model, *arguments).returncode == 0
    dump_weights(model, tmp_path / "export", include_softmax=True)
    with_memory = [*text, "--memory", file]
    assert run_here("bilm score", "--model", tmp_path / "export", *with_memory).returncode == 0
    run(tmp_path / "other", 2, changes=VARIANTS["words"], seed=1)
    for command in ("bilm score", "bilm surprisal", "bilm fill"):
        refused = run_here(command, "--model", tmp_path / "other", *with_memory)
        assert_fails(refused, f"{file}: memory of another model, whose weights")


def test_share_at_its_bound_is_a_warning(memory, log):
    for probability, share in ((1e-9, 1e-6), (1 - 1e-9, 1 - 1e-6)):
        logs = np.full(4, np.log(probability))
        fit_to(memory, [Score(logs, None, ["the", "cat", "walked"], np.ones(4, bool))] * 3)
        assert f"(forward) is at its bound: {share:g}; " in log.text
        log.clear()
    fit_to(memory, [Score(np.log([0.9, 1e-3]), None, ["the"], np.ones(2, bool))])
    assert "bound" not in log.text


def share_of_unknown(path):
    words = [word for sentence in resolve_shards(path).sentences() for word in sentence]
    known = {*load_scorer(tiny_run("words")).words}
    return sum(word not in known for word in words) / len(words)


def test_memory_command_and_its_users(run_here, tmp_path):
    model, file = ["--model", tiny_run("words")], tmp_path / "memory.hdf5"
    text = tmp_path / "text"
    text.write_text("w1 w2 w3\nw2 [MASK] w1\n", encoding="utf-8")
    arguments = [*model, "--input", TEXT, "--heldout", HELDOUT, "--output", file, "--hours", "0"]
    done = succeeded(run_here("bilm memory", *arguments))
    assert "10 of 200 steps and 15 of 300 words to fit the memory" in done.stderr
    blank = tmp_path / "blank"
    blank.write_text("\n \n", encoding="utf-8")
    wordless = [*model, "--input", TEXT, "--heldout", blank, "--output", tmp_path / "other"]
    refusal = run_here("bilm memory", *wordless)
    assert_fails(refusal, "held-out text: found no words, expected at least one sentence")
    own = Path(tiny_run("words")) / "vocab.txt"
    before = own.read_bytes()
    refused = [*model, "--input", TEXT, "--heldout", HELDOUT, "--output", own]
    assert_fails(run_here("bilm memory", *refused), "is also an input")
    assert own.read_bytes() == before
    *figures, unknown = [line.split(" = ")[1] for line in done.stdout.splitlines()]
    mixed, alone = map(float, figures)
    assert mixed < alone and unknown == f"{100 * share_of_unknown(HELDOUT):.1f} %"
    arguments = [*model, "--input", HELDOUT, "--memory", file]
    figures = json.loads(run_here("bilm test", *arguments, "--stateless", "--json").stdout)
    assert figures["perplexity_with_memory"] == pytest.approx(mixed, abs=0.01)
    assert figures["average_perplexity"] == pytest.approx(alone, abs=0.01)
    done = run_here("bilm score", *arguments)
    found = float(done.stderr.split("PERPLEXITY WITH MEMORY = ")[1].split()[0])
    assert found == mixed
    plain = run_here("bilm score", *model, "--input", HELDOUT)
    assert plain.stdout != done.stdout and plain.stderr.splitlines()[-1] in done.stderr
    rows = rows_of(run_here("bilm surprisal", *arguments).stdout)
    scorer = load_scorer(tiny_run("words"))
    words = next(iter(resolve_shards(HELDOUT).sentences()))
    memory = Memory.load(file, open_model(tiny_run("words")), scorer.words)
    score = memory.mixed(next(scorer.score([words])))
    for name, logs in (("forward", score.forward[:-1]), ("backward", score.backward[1:])):
        bits = [float(row[name]) for row in rows if row["sentence"] == "0"]
        np.testing.assert_allclose(bits, -logs / np.log(2), rtol=1e-4)
    a, b = (run_here("bilm fill", *model, "--input", text, *more).stdout
            for more in ([], ["--memory", file]))  # fmt: skip
    assert a.count("\n") == b.count("\n") == 11 and a != b
    done = run_here("bilm test", *arguments)
    assert_fails(done, "--stateless", status=2)
