"""Words that are used like a word, in a text and in a table, by a comparison with all words."""

import command_runs
import numpy as np
import pytest
from command_runs import assert_fails, succeeded

import bilm
from bilm.errors import DataError
from bilm.studies.usages import find_neighbours, words_of_text

TEXT = ["The old house stood empty", "An old home and a House", "old houses stood", "", "he left"]
SENTENCES = [line.split() for line in TEXT]


@pytest.fixture(scope="module")
def embedder():
    return bilm.ElmoEmbedder("novels-en")


def expected(embedder, words, own, left_out=(), layer=-1):
    """Return cosine and place of all words, the most similar first."""
    vectors = [layers[layer] for layers in embedder.embed_batch(SENTENCES)]
    unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in vectors]
    query = sum(unit[line][i] for line, i in own)
    query /= np.linalg.norm(query)
    rows = [
        (float(unit[line][i] @ query), word, line + 1, i)
        for line, words_ in enumerate(SENTENCES)
        for i, word in enumerate(words_)
        if (line, i) not in own and word not in left_out
    ]
    rows.sort(reverse=True)
    if words:
        first = {}
        for row in rows:
            first.setdefault(row[1].casefold(), row)
        rows = list(first.values())
    return rows


def rows_of(found):
    return [(pytest.approx(each.similarity, abs=1e-5), *each[1:4]) for each in found]


@pytest.mark.parametrize("layer", [None, 1])
@pytest.mark.parametrize("words", [False, True])
def test_neighbours_are_the_most_similar_of_all_words(embedder, words, layer):
    text = words_of_text(embedder, SENTENCES, layer)
    number = -1 if layer is None else layer
    nearest = find_neighbours(
        *text, lambda usage: usage.word.lower() == "house", 6, each_word_once=words,
        is_left_out=lambda usage: usage.word == "houses",
    )  # fmt: skip
    house = expected(embedder, words, [(0, 2), (1, 5)], ["houses"], number)
    assert house[:6] == rows_of(nearest)
    assert nearest[0].sentence.split(" ")[nearest[0].position] == nearest[0].word
    of_one = find_neighbours(*text, lambda usage: usage[1:4] == ("old", 2, 1), 3)
    assert expected(embedder, False, [(1, 1)], layer=number)[:3] == rows_of(of_one)
    everything = find_neighbours(*text, lambda usage: usage.word == "house", 99)
    assert len(everything) == len(text[1]) - 1
    with pytest.raises(DataError, match="found no usage of the word"):
        find_neighbours(*text, lambda usage: usage.word == "HOUSE")


def run(run_here, *arguments):
    done = succeeded(run_here("bilm neighbours", *arguments))
    rows = command_runs.rows_of(done.stdout)
    return [(float(r["similarity"]), r["word"], int(r["line"]), int(r["position"])) for r in rows]


def test_neighbours_command(run_here, embedder, tmp_path):
    (path := tmp_path / "text.txt").write_text("\n".join(TEXT), encoding="utf-8")
    text = ["--model", "novels-en", "--input", path, "--word", "house", "--ignore_case"]
    left_out = ["--exclude", "/houses?/", "--exclude", "house"]
    words = run(run_here, *text, "--words", *left_out, "--n", "3")
    house = expected(embedder, True, [(0, 2), (1, 5)], ["houses"])
    assert [row[1:] for row in words] == [row[1:] for row in house[:3]]
    assert [row[0] for row in words] == pytest.approx([row[0] for row in house[:3]], abs=1e-4)
    in_line = run(run_here, *text, "--line", "2", "--n", "2")
    assert [row[1:] for row in in_line] == [r[1:] for r in expected(embedder, 0, [(1, 5)])[:2]]
    assert_fails(run_here("bilm neighbours", *text, "--line", "3"), "found no usage of the word")
    pytest.importorskip("pyarrow")
    table = tmp_path / "table.parquet"
    entries = ["--word", "/house|old|stood/", "--input", path, "--output", table]
    assert run_here("bilm usages", "--model", "novels-en", *entries).returncode == 0
    found = run(run_here, "--usages", table, "--word", "old", "--words")
    assert {row[1] for row in found} == {"house", "stood"}
    assert_fails(run_here("bilm neighbours", "--word", "old"), "--usages", status=2)
