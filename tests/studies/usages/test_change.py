"""Change between groupings: definitions, intervals, tests, frequencies."""

import json
from dataclasses import replace
from itertools import combinations, compress
from pathlib import Path

import numpy as np
import pytest
from command_runs import succeeded

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
distance = pytest.importorskip("scipy.spatial.distance")
pytest.importorskip("sklearn")
pytestmark = pytest.mark.clients

from bilm.errors import DataError
from bilm.studies.usages.change import in_words, measure, measure_change
from bilm.studies.usages.measures import LARGEST
from bilm.studies.usages.settings import MIN_USAGES, Settings
from bilm.studies.usages.usages import Description, Grouping, Usage, Usages, frame_of

WORD = "cell"


def make_usages(vectors, n_first, tags=None, forms=None):
    """Return usages of a word, the first ones in the grouping `then`, with vectors in layer 2."""
    rows = []
    for k in range(len(vectors)):
        name = "then" if k < n_first else "now"
        words = ["the", forms[k] if forms else WORD, "number", str(k)]
        tag = tags[k] if tags else None
        rows.append(Usage(WORD, name, f"{name}:{k}", name, k + 1, 1, words, tag=tag))
    n_second = len(vectors) - n_first
    groupings = (Grouping("then", ("then",), 10, 1000), Grouping("now", ("now",), 10, 4000))
    counts = {WORD: {"then": n_first, "now": n_second}}
    arrays = {2: np.asarray(vectors, np.float32)}
    description = Description(groupings, counts, layers=(2,), dim=arrays[2].shape[1])
    return Usages(frame_of(rows), arrays, description)


def is_first(usages):
    return (usages.frame["grouping"] == "then").to_numpy()


@pytest.fixture
def usages():
    return make_usages(np.random.default_rng(0).normal(size=(25, 6)) + 1, 10)


def test_apd_is_the_mean_cosine_distance_of_all_pairs(usages):
    vectors = usages.vectors(2)
    expected = distance.cdist(vectors[:10], vectors[10:], "cosine").mean()
    found = measure("apd", usages, is_first(usages), settings=Settings(n_resamples=0))
    assert found.value == pytest.approx(expected, abs=1e-6) and np.isnan(found.p)


def test_prt_is_the_cosine_distance_of_mean_vectors_less_its_mean_over_splits():
    vectors = np.random.default_rng(0).normal(size=(9, 6)) + 1
    own = make_usages(vectors, 4)

    def prt(first):
        mask = np.isin(np.arange(9), first)
        return distance.cosine(vectors[mask].mean(axis=0), vectors[~mask].mean(axis=0))

    expected = prt(range(4)) - np.mean([prt(first) for first in combinations(range(9), 4)])
    found = measure("prt", own, is_first(own), settings=Settings(n_resamples=9999))
    assert found.value == pytest.approx(expected, abs=0.01)


def test_default_layer_is_the_mean_of_the_lstm_layers(usages):
    layers = {k: usages.vectors(2) + k * np.arange(6) for k in (0, 1, 2, 3)}
    several = Usages(usages.frame, layers, usages.description)
    mean = Usages(usages.frame, {2: layers[2]}, usages.description)  # of 1, 2 and 3
    settings = Settings(n_resamples=20)
    found = measure_change(several, settings).iloc[0]
    assert found["layer"] == "mean" and found["answer"] == "too few usages"
    assert found["apd"] == pytest.approx(measure_change(mean, settings)["apd"][0])
    assert found["apd_same"] == pytest.approx(found["apd"], abs=0.05) and found["prt_same"] == 0


def test_vectors_that_are_not_finite_are_an_error(usages):
    usages.vectors(2)[3, 1] = np.nan
    with pytest.raises(DataError, match="vectors of layer 2 contain values that are not finite"):
        measure("prt", usages, is_first(usages))


def test_few_usages_do_not_make_an_unchanged_word_look_changed():
    """Words of one distribution with 6 to 200 usages, and changed words of 25 and more."""
    draw = np.random.default_rng(0)
    spread = 1 / np.sqrt(np.arange(1, 33))

    def prt(n_first, n_second, shift):
        vectors = draw.normal(size=(n_first + n_second, 32)) * spread
        vectors[:, 0] += 1.5
        vectors[n_first:, 5] += shift
        own = make_usages(vectors, n_first)
        return measure("prt", own, is_first(own), 2, Settings(n_resamples=200))

    sizes = [(6, 6), (6, 200), (12, 12), (50, 50), (200, 200)] * 8
    same = [prt(*n, 0) for n in sizes]
    changed = [prt(*n, 1.5) for n in ((25, 25), (25, 200), (200, 200)) * 5]
    assert max(m.value for m in same) < min(m.value for m in changed)
    enough = [min(n) >= MIN_USAGES for n in sizes]
    assert [not np.isnan(m.low) for m in same] == enough
    assert np.mean([m.low <= 0 <= m.high for m in compress(same, enough)]) >= 0.95
    assert all(0 < m.low <= m.value <= m.high <= LARGEST for m in changed)
    of_few = np.array([m.value for m, n in zip(same, sizes, strict=True) if n == (6, 6)])
    assert abs(of_few.mean()) < 2 * of_few.std() / np.sqrt(len(of_few) - 1)
    p = np.array([m.p for m in same])
    assert 0.35 < p.mean() < 0.65 and (p < 0.05).mean() <= 0.15


def test_p_values_equal_those_of_a_naive_permutation_test():
    vectors = np.random.default_rng(0).normal(size=(8, 6)) + 1
    own = make_usages(vectors, 3)
    found = measure("apd", own, is_first(own), 2, Settings(n_resamples=9999)).p
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)

    def apd(first):
        mask = np.isin(np.arange(8), first)
        return 1 - vectors[mask].mean(axis=0) @ vectors[~mask].mean(axis=0)

    every = np.array([apd(first) for first in combinations(range(8), 3)])
    assert found == pytest.approx((every >= apd((0, 1, 2)) - 1e-6).mean(), abs=0.02)


def test_table_has_frequencies_and_adjusted_p_values(usages):
    row = measure_change(usages, Settings(n_resamples=50)).iloc[0]
    assert row["apd_p"] > 0 and np.isnan(row["apd_q"])  # few usages
    assert (row["usages_then"], row["usages_now"], row["layer"]) == (10, 15, 2)
    assert row["per_million_then"] == 10_000 and row["per_million_now"] == 3_750
    assert row["log_ratio"] == pytest.approx(np.log2((15.5 / 4001) / (10.5 / 1001)))


def test_words_with_one_usage_in_a_grouping_have_no_values():
    frame = measure_change(make_usages(np.ones((5, 3)), 1), Settings(n_resamples=10))
    assert np.isnan(frame["apd"][0]) and np.isnan(frame["apd_q"][0])


def test_tags_and_proper_names_are_filtered():
    vectors = np.random.default_rng(0).normal(size=(8, 3))
    tags = ["NOUN", "VERB", "NOUN", "PROPN"] * 2
    own = make_usages(vectors, 4, tags)
    kept = measure_change(own, Settings(n_resamples=0, tags=frozenset({"NOUN"})))
    assert kept["usages_then"][0] == 2
    assert measure_change(own, Settings(n_resamples=0, proper_names=False))["usages_then"][0] == 3
    forms = ["Cell", "cell", "cell", "cell"] * 2
    own = make_usages(vectors, 4, forms=forms)
    assert measure_change(own, Settings(n_resamples=0, proper_names=False))["usages_then"][0] == 3
    with pytest.raises(DataError, match="contains no parts of speech"):
        measure_change(own, Settings(tags=frozenset({"NOUN"})))


def test_each_word_has_an_answer_in_plain_words():
    draw = np.random.default_rng(0)
    shifts = {"same": 0, "mark": 3, "few": 3, "door": 1.5}  # of 40 usages in the second text, or 9
    of_words = []
    for word, shift in shifts.items():
        n = 9 if word == "few" else 40
        vectors = draw.normal(size=(2 * n, 6)) + 1
        vectors[n:, 0] += shift
        of_words.append(make_usages(vectors, n, forms=[word.title()] * n + [word] * n))
    frames = [own.frame.assign(word=word) for word, own in zip(shifts, of_words, strict=True)]
    frame = pandas.concat(frames, ignore_index=True)
    frame.loc[frame["word"] != "mark", "form"] = WORD
    counts = {word: {"then": 40, "now": 40} for word in shifts}
    vectors = {2: np.concatenate([usages.vectors(2) for usages in of_words])}
    usages = Usages(frame, vectors, replace(of_words[0].description, counts=counts))

    def answers(*controls, n_resamples=99):
        settings = Settings(n_resamples=n_resamples, controls=controls)
        table = measure_change(usages, settings)
        return in_words(table, settings), table["answer"].tolist()

    lines, found = answers()
    assert found == ["not shown to have changed", "changed", "too few usages", "changed"]
    assert lines[3] == "few: too few usages; 9 + 9 usages"  # the last of the words
    (of_mark,) = (line for line in lines if line.startswith("mark: changed; 40 + 40 usages; apd "))
    assert "100% in then are a proper name" in of_mark and "proper" not in lines[3]
    assert lines[4].startswith("3 of 4 words were tested, with at least 20 usages in then and in ")
    assert answers("door")[1][1::2] == ["changed", "control word"]
    assert answers("mark")[1][1::2] == ["control word", "not shown to have changed"]
    assert answers(n_resamples=0)[1][:2] == ["not tested"] * 2


SWAPPED = Path(__file__).parent / "swapped_dwug"  # see its README.md


def test_two_commands_lead_from_dwug_to_measures(tmp_path, run_here):
    table, plot, output = (tmp_path / name for name in ("u.parquet", "c.png", "c.csv"))
    succeeded(run_here("bilm usages", "--model", "novels-en", "--dwug", SWAPPED, "--output", table))
    files = "--usages", table, "--output", output, "--plot", plot
    how = "--n_resamples", "99", "--measures", "apd,prt"
    done = succeeded(run_here("bilm change", *files, *how))
    assert "8 words were tested" in done.stdout and "Cite apd (mean cosine" in done.stdout
    frame = pandas.read_csv(output)
    gold = pandas.read_csv(SWAPPED / "stats/opt/stats_groupings.csv", sep="\t")
    both = frame.merge(gold, left_on="word", right_on="lemma")
    assert len(frame) == len(both) == 8 and set(frame["layer"]) == {"mean"}
    for _, rows in both.groupby("layer"):
        changed = rows["change_graded"] >= 0.75  # most of the second sentences are the partner's
        assert rows["prt"][changed].mean() > rows["prt"][~changed].mean()
    assert plot.read_bytes().startswith(b"\x89PNG")
    done = run_here("bilm change", "--usages", table, "--json", "--n_resamples", "0")
    found = json.loads(done.stdout)["words"][0]
    assert {"apd", "apd_low", "log_ratio"} <= set(found)
    assert found["apd_p"] is None  # nothing was resampled


def usages_in(texts, names):
    """Return the usages of words in sentences by grouping; an entry is a word and its forms."""
    rows = [
        Usage(word, name, f"{name}:{k}:{word}", name, k, words.index(form), words)
        for name, sentences in texts.items()
        for k, sentence in enumerate(sentences)
        for words in [sentence.split()]
        for word, forms in names.items()
        for form in forms
        if form in words
    ]
    groupings = tuple(Grouping(name, (name,), 1, 1) for name in texts)
    counts = {name: dict.fromkeys(texts, 1) for name in names}
    vectors = {1: np.ones((len(rows), 2), np.float32)}
    return Usages(frame_of(rows), vectors, Description(groupings, counts, layers=(1,)))


def ppmi(usages, **settings):
    frame = measure_change(usages, Settings(measures=("prt",), n_resamples=0, **settings))
    return frame.set_index("word")["ppmi"]


def test_ppmi_distance_is_large_for_words_in_other_contexts():
    both = ["y a b c"] * 20 + ["y big same red tiny wet green"]
    texts = {"then": [*both, *["x big same red"] * 20], "now": [*both, *["x tiny wet green"] * 20]}
    texts = {name: [*text, *["big same red tiny wet green x"] * 5] for name, text in texts.items()}
    found = ppmi(usages_in(texts, {"x": ["x"], "y": ["y"]}))
    assert found["x"] > 0.5 and found["y"] < 0.1


def test_baseline_counts_the_usages_that_the_measures_compare():
    """Also forms that two entries share, and no usages that the settings leave out."""
    common = ["a x b", "a x c", "d x b"] * 5
    texts = {"then": [*common, *["X e f"] * 5], "now": [*common, *["X g h"] * 5]}
    texts = {name: [*text, *["X a b c d e f g h"] * 5] for name, text in texts.items()}
    usages = usages_in(texts, {"x": ["x"], "all": ["x", "X"]})
    found = ppmi(usages)
    assert found["x"] == pytest.approx(0, abs=0.1) and found["all"] > found["x"]
    usages.frame["tag"] = usages.frame["form"].map({"x": "NOUN", "X": "VERB"})
    found = ppmi(usages, tags=frozenset({"NOUN"}))
    assert found["all"] == found["x"] == pytest.approx(0)
