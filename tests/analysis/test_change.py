"""Change between groupings: definitions, intervals, tests, frequencies, baselines, gold scores."""

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
stats = pytest.importorskip("scipy.stats")
pytest.importorskip("sklearn")
pytestmark = pytest.mark.clients

from bilm.analysis.baselines import ppmi_distances
from bilm.analysis.change import Settings, correlations, measure, measure_change
from bilm.analysis.gold import read_gold
from bilm.analysis.usages import SUBSTITUTES, Description, Grouping, Usage, Usages
from bilm.errors import DataError, OptionsError

WORD = "cell"


def make_usages(vectors, n_first, tags=None, forms=None, context_free=None):
    """Return usages of a word, the first ones in the grouping `then`, with vectors in layer 2."""
    rows = []
    for k in range(len(vectors)):
        name = "then" if k < n_first else "now"
        form = forms[k] if forms else WORD
        tag = tags[k] if tags else None
        sentence = f"the {form} number {k}"
        rows.append(Usage(WORD, name, f"{name}:{k}", name, k + 1, 1, sentence, tag=tag))
    n_second = len(vectors) - n_first
    groupings = (Grouping("then", ("then",), 10, 1000), Grouping("now", ("now",), 10, 4000))
    counts = {WORD: {"then": n_first, "now": n_second}}
    arrays = {2: np.asarray(vectors, np.float32)}
    if context_free is not None:
        arrays = {0: np.asarray(context_free, np.float32), **arrays}
    description = Description(groupings, counts, layers=tuple(arrays), dim=arrays[2].shape[1])
    return Usages(Usages.without_vectors(rows, description).frame, arrays, description)


def is_first(usages):
    return (usages.frame["grouping"] == "then").to_numpy()


@pytest.fixture
def usages():
    return make_usages(np.random.default_rng(0).normal(size=(25, 6)) + 1, 10)


# --- definitions ---


def test_apd_is_the_mean_cosine_distance_of_all_pairs(usages):
    from scipy.spatial.distance import cdist

    vectors = usages.vectors(2)
    expected = cdist(vectors[:10], vectors[10:], "cosine").mean()
    found = measure("apd", usages, is_first(usages), settings=Settings(n_resamples=0))
    assert found.value == pytest.approx(expected, abs=1e-6) and np.isnan(found.p)


def test_prt_is_the_cosine_distance_of_mean_vectors(usages):
    from scipy.spatial.distance import cosine

    vectors = usages.vectors(2)
    expected = cosine(vectors[:10].mean(axis=0), vectors[10:].mean(axis=0))
    found = measure("prt", usages, is_first(usages), settings=Settings(n_resamples=0))
    assert found.value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", ["jsd_kmeans", "jsd_affinity"])
def test_divergence_is_one_bit_for_disjoint_clusters_and_zero_for_equal_shares(name):
    draw = np.random.default_rng(0)
    a, b = (draw.normal(center, 0.01, (20, 2)) for center in ([1, 0], [0, 1]))
    settings = Settings(n_resamples=0, n_clusters=2)
    apart = make_usages(np.concatenate([a, b]), 20)
    if name == "jsd_kmeans":
        assert measure(name, apart, is_first(apart), 2, settings).value == pytest.approx(1)
        mixed = make_usages(np.concatenate([a[:10], b[:10], a[10:], b[10:]]), 20)
        assert measure(name, mixed, is_first(mixed), 2, settings).value == pytest.approx(0)
    else:
        assert measure(name, apart, is_first(apart), 2, settings).value == pytest.approx(1)


def test_divergence_of_substitutes(usages):
    words, shares = [["a", "b"]] * 10 + [["b", "c"]] * 15, [[0.25, 0.25]] * 25
    frame = usages.frame.assign(**dict(zip(SUBSTITUTES, (words, shares), strict=True)))
    own = Usages(frame, usages.arrays, usages.description)
    found = measure("jsd_substitutes", own, is_first(own), settings=Settings(n_resamples=0))
    assert found.value == pytest.approx(0.5)  # b is common to both, a and c are not
    with pytest.raises(OptionsError, match="contains no substitutes"):
        measure("jsd_substitutes", usages, is_first(usages))


def test_vector_of_the_word_itself_is_subtracted(usages):
    vectors, word = usages.vectors(2), np.full((25, 6), 3.0)
    shifted = make_usages(vectors + word, 10, context_free=word)
    plain, subtracted = (
        measure("prt", shifted, is_first(shifted), 2, Settings(n_resamples=0, subtract_word=s))
        for s in (False, True)
    )
    original = measure("prt", usages, is_first(usages), 2, Settings(n_resamples=0))
    assert subtracted.value == pytest.approx(original.value, abs=1e-5) != plain.value


# --- intervals and tests ---


def test_interval_contains_the_value_and_narrows_with_more_usages():
    draw = np.random.default_rng(1)
    widths = []
    for n in (20, 200):
        own = make_usages(draw.normal(size=(2 * n, 6)) + 1, n)
        found = measure("apd", own, is_first(own), 2, Settings(n_resamples=300))
        assert found.low < found.value < found.high
        widths.append(found.high - found.low)
    assert widths[1] < widths[0]


def test_permutation_test_finds_a_shift_and_has_few_false_alarms():
    draw = np.random.default_rng(2)
    settings = Settings(n_resamples=199)
    shifted = make_usages(
        np.concatenate([draw.normal(size=(30, 6)), draw.normal(size=(30, 6)) + 2]), 30
    )
    for name in ("apd", "prt"):
        assert measure(name, shifted, is_first(shifted), 2, settings).p <= 0.01
    alarms = 0
    for _ in range(100):
        own = make_usages(draw.normal(size=(40, 4)), 20)
        alarms += measure("prt", own, is_first(own), 2, settings).p < 0.05
    assert alarms <= 12  # 5 expected; more than 12 has a probability of 0.2 %


def test_p_values_equal_those_of_a_naive_permutation_test(usages):
    own = usages.where(np.arange(25) >= 17)  # 0 of the first grouping: take a small one instead
    own = make_usages(own.vectors(2), 3)
    found = measure("apd", own, is_first(own), 2, Settings(n_resamples=9999)).p
    from itertools import combinations

    vectors = own.vectors(2) / np.linalg.norm(own.vectors(2), axis=1, keepdims=True)

    def apd(first):
        mask = np.isin(np.arange(8), first)
        return 1 - vectors[mask].mean(axis=0) @ vectors[~mask].mean(axis=0)

    every = np.array([apd(first) for first in combinations(range(8), 3)])
    assert found == pytest.approx((every >= apd((0, 1, 2)) - 1e-9).mean(), abs=0.02)


def test_equal_seeds_give_equal_results(usages):
    settings = Settings(n_resamples=50, seed=4)
    pandas.testing.assert_frame_equal(
        measure_change(usages, settings), measure_change(usages, settings)
    )


# --- tables ---


def test_table_has_frequencies_and_adjusted_p_values(usages):
    row = measure_change(usages, Settings(n_resamples=50)).iloc[0]
    assert (row["usages_then"], row["usages_now"], row["layer"]) == (10, 15, 2)
    assert row["per_million_then"] == 10_000 and row["per_million_now"] == 3_750
    assert row["log_ratio"] == pytest.approx(np.log2((15.5 / 4001) / (10.5 / 1001)))
    assert row["apd_q"] == row["apd_p"]  # one word: nothing to adjust


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(measures=("x",)), "the measure is 'x', expected one of apd"),
        (Settings(between=("then", "x")), "the groupings are then, now"),
        (Settings(layers=(1,)), "layer 1 is not in the table"),
    ],
)
def test_wrong_settings_are_errors(settings, message, usages):
    with pytest.raises(OptionsError, match=message):
        measure_change(usages, settings)


# --- baselines ---


def test_ppmi_distance_is_large_for_words_in_other_contexts():
    then = [["x", "big", "same", "red"], ["y", "big", "same", "red"]] * 20
    now = [["x", "tiny", "wet", "green"], ["y", "big", "same", "red"]] * 20
    now += [["tiny", "wet", "green", "big"]] * 6
    then += [["tiny", "wet", "green", "big"]] * 6
    found = ppmi_distances(lambda: then, lambda: now, ["x", "y", "absent"])
    assert found["x"] > 0.9 and found["y"] < 0.1 and np.isnan(found["absent"])


# --- gold scores ---

GOLD = (
    "lemma\tgrouping\tchange_binary\tchange_graded\na\t1:2\t1\t0.9\nb\t1:2\t0\t0.1\nc\t1:2\t0\t\n"
)


def test_gold_scores_of_dwug_and_of_lists(tmp_path):
    path = tmp_path / "stats_groupings.csv"
    path.write_text(GOLD)
    assert read_gold(path) == {"a": 0.9, "b": 0.1}
    assert read_gold(path, "change_binary") == {"a": 1, "b": 0, "c": 0}
    (tmp_path / "graded.txt").write_text("attack_nn\t0.14\nbag_nn\t0.1\n")
    assert read_gold(tmp_path / "graded.txt") == {"attack_nn": 0.14, "bag_nn": 0.1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lemma\tx\na\t1\n", "the column change_graded is missing; it contains lemma, x"),
        ("a\t0.1\nb\tmuch\n", "line 2: expected a word and a number"),
        ("a\t0.1\na\t0.2\n", "line 2: 'a' has a second score"),
        ("", "is empty"),
    ],
)
def test_wrong_gold_scores_are_errors(text, message, tmp_path):
    path = tmp_path / "gold.tsv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_gold(path)


def test_correlation_equals_scipys_spearman():
    draw = np.random.default_rng(0)
    frame = pandas.DataFrame({"word": list("abcdefgh"), "layer": 2, "apd": draw.random(8)})
    gold = dict(zip("abcdefgh", draw.random(8), strict=True)) | {"absent": 1.0}
    (found,) = correlations(frame, gold, ["apd"], n_resamples=200)
    expected = stats.spearmanr(frame["apd"], [gold[w] for w in "abcdefgh"])
    assert found.rho == pytest.approx(expected.statistic) and found.n_words == 8
    assert found.low <= found.rho <= found.high
    with pytest.raises(DataError, match="0 words of the table have a gold score"):
        correlations(frame, {"x": 1.0}, ["apd"])


# --- the commands, from a data set to correlations ---

SENSES = {  # sentences of two senses of a place; the words below fill it
    "animal": [
        "the {} ran across the field and barked at the horses",
        "he fed the old {} in the barn before the snow came",
        "a young {} slept beside its mother near the river",
        "the hunters followed the {} through the dark wood",
        "she stroked the {} until it closed its eyes",
    ],
    "paper": [
        "he wrote a long {} to his brother in London",
        "the {} lay unopened on the table beside the lamp",
        "she read the {} twice and put it into the fire",
        "a {} arrived by the morning post from her aunt",
        "he folded the {} and sealed it with red wax",
    ],
}
CHANGE = {"hound": 1.0, "letter": 0.8, "calf": 0.2, "note": 0.0, "fox": 0.1}  # made up
THEN = {"hound": "animal", "letter": "paper", "calf": "animal", "note": "paper", "fox": "animal"}
NOW = {**THEN, "hound": "paper", "letter": "animal"}


@pytest.fixture
def dwug(tmp_path):
    """Write a small data set in DWUG's layout, in which two of five words change their sense."""
    folder = tmp_path / "dwug_tiny"
    header = (
        "lemma\tpos\tdate\tgrouping\tidentifier\tdescription\tcontext\tindexes_target_token\t"
        "indexes_target_sentence"
    )
    for word in CHANGE:
        lines = [header]
        for grouping, senses, date in (("1", THEN, 1850), ("2", NOW, 1990)):
            for k, pattern in enumerate(SENSES[senses[word]]):
                context = pattern.format(word)
                begin = context.index(f" {word} ") + 1
                lines.append(
                    f"{word}\tnn\t{date}\t{grouping}\t{word}-{grouping}-{k}\t\t{context}\t"
                    f"{begin}:{begin + len(word)}\t0:{len(context)}"
                )
        path = folder / "data" / word / "uses.csv"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(lines) + "\n")
    gold = folder / "stats" / "opt" / "stats_groupings.csv"
    gold.parent.mkdir(parents=True)
    rows = "".join(f"{word}\t{score}\n" for word, score in CHANGE.items())
    gold.write_text("lemma\tchange_graded\n" + rows)
    return folder


def test_two_commands_lead_from_dwug_to_correlations(dwug, tmp_path, run_here):
    table, plot, output = (tmp_path / name for name in ("u.parquet", "c.png", "c.csv"))
    done = run_here("bilm usages", "--model", "novels-en", "--dwug", dwug, "--output", table)
    assert done.returncode == 0, done.stderr
    done = run_here(
        "bilm change", "--usages", table, "--gold", dwug / "stats/opt/stats_groupings.csv",
        "--output", output, "--plot", plot, "--n_resamples", "99", "--measures", "apd,prt",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = {tuple(line.split()[:2]): line.split() for line in done.stdout.splitlines()[1:]}
    assert float(lines["apd", "2"][2]) > 0.6 and lines["apd", "2"][-1] == "5"
    frame = pandas.read_csv(output)
    assert sorted(frame["word"].unique()) == sorted(CHANGE) and len(frame) == 10
    top = frame[frame["layer"] == 2].sort_values("apd", ascending=False)["word"].tolist()
    assert set(top[:2]) == {"hound", "letter"}
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_change_as_json_with_baselines(dwug, tmp_path, run_here):
    import json

    pytest.importorskip("gensim")
    table = tmp_path / "u.parquet"
    run_here("bilm usages", "--model", "novels-en", "--dwug", dwug, "--output", table)
    done = run_here("bilm change", "--usages", table, "--json", "--baselines", "--n_resamples", "0")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"ppmi", "sgns", "apd"} <= set(found["words"][0])
