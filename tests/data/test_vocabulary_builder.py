"""A vocabulary from text: the order, the limits, the outputs."""

import gzip
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.data.vocabulary import MARKS, Vocabulary
from bilm.data.vocabulary_builder import build_vocabulary, chosen_min_count
from bilm.errors import BilmError, DataError


def expected_counts(sentences):
    counts = Counter(word for words in sentences for word in words)
    for mark in (*MARKS, "!!!MAXTERMID"):
        del counts[mark]
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text("b a b\n\n<S> é a </S> <UNK>\n", encoding="utf-8")
    (folder / "b.txt.gz").write_bytes(gzip.compress(b"b c !!!MAXTERMID\nz"))
    return f"{folder}/*"


def test_vocabulary_is_sorted_by_frequency(corpus, tmp_path):
    found = build_vocabulary(corpus, tmp_path / "v")
    assert (tmp_path / "v").read_text() == "<S>\n</S>\n<UNK>\nb\na\nc\nz\né\n"
    assert (found.n_sentences, found.n_tokens, found.n_distinct) == (4, 12, 5)
    assert (found.n_words, found.n_covered) == (5, 10)  # <UNK> is unknown
    assert Vocabulary(tmp_path / "v", validate_file=True).size == 8


@pytest.mark.parametrize(
    ("n_once", "n_twice", "n_thrice", "min_count"),
    [(0, 0, 0, 3), (1, 1, 0, 3), (1, 1, 1, 2), (2, 2, 0, 1), (9, 0, 0, 1)],
)
def test_minimum_count_leaves_few_words_unknown(n_once, n_twice, n_thrice, min_count):
    rare = {1: n_once, 2: n_twice, 3: n_thrice}
    counts = {f"{n} {k}": n for n, n_words in rare.items() for k in range(n_words)}
    counts["frequent"] = 100 - sum(counts.values())
    assert chosen_min_count(counts) == min_count  # at most 5 of 100 tokens are of rarer words


@settings(deadline=None)
@given(
    st.lists(st.lists(st.text("abé\x01\ufeff", min_size=1, max_size=2), max_size=6), max_size=12),
    st.integers(1, 3),
    st.sampled_from([None, 4, 7]),
)
def test_vocabulary_is_that_of_a_counter(tmp_path_factory, sentences, min_count, max_size):
    folder = tmp_path_factory.mktemp("v")
    sentences = [["a", "a", "a", "a"], *sentences]
    text = "".join(" ".join(words) + "\n" for words in sentences)
    (folder / "text").write_text(text, encoding="utf-8")
    limits = {"min_count": min_count, "max_size": max_size}
    build_vocabulary(folder / "text", folder / "v", **limits)
    expected = [pair for pair in expected_counts(sentences) if pair[1] >= min_count]
    expected = expected[: None if max_size is None else max_size - len(MARKS)]
    words = (folder / "v").read_text(encoding="utf-8").split("\n")[:-1]
    assert words == [*MARKS, *(word for word, _ in expected)]
    assert sorted(p.name for p in folder.iterdir()) == ["text", "v"]  # nothing is left over


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_count": 9}, "no word is left"),
        ({"min_count": 0}, "min_count is 0, expected at least 1"),
        ({"max_size": 3}, "no word is left"),
        ({"input": "nowhere/*"}, r"nowhere/\*: no file matches"),
    ],
)
def test_vocabulary_builder_arguments_are_validated(corpus, tmp_path, changes, message):
    (tmp_path / "v").write_text("before")
    with pytest.raises(BilmError, match=message):
        build_vocabulary(**{"input": corpus, "output": tmp_path / "v"} | changes)
    assert (tmp_path / "v").read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["corpus", "v"]


def test_vocabulary_outputs_must_not_be_inputs(corpus, tmp_path):
    with pytest.raises(DataError, match=r"a\.txt: is also an input or another output"):
        build_vocabulary(corpus, tmp_path / "corpus" / "a.txt")
    with pytest.raises(IsADirectoryError, match="Found a folder, expected a file name"):
        build_vocabulary(corpus, tmp_path / "corpus")
    with pytest.raises(OSError, match=r"cannot be replaced: '/dev/null'"):
        build_vocabulary(corpus, "/dev/null")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["corpus"]


def test_vocab_command_writes_a_vocabulary(corpus, tmp_path, run_here):
    done = run_here("bilm vocab", "--input", corpus, "--output", tmp_path / "v", "--max_size=5")
    assert done.returncode == 0, done.stderr
    expected = "2 of 5 distinct words (--min_count 1), 58.33 % of 12 tokens"
    assert done.stdout == f"wrote {tmp_path / 'v'}: {expected}\n"
    assert "2 of the first 12 words are the marks of a sentence's ends" in done.stderr
    assert (tmp_path / "v").read_text().split() == [*MARKS, "b", "a"]
