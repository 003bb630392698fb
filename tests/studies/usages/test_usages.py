"""Tables of usages: places, samples, vectors, Parquet, DWUG's layout."""

import json
import re

import numpy as np
import pytest
from command_runs import succeeded
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pandas = pytest.importorskip("pandas")
pytestmark = pytest.mark.clients


import bilm
from bilm.data.readers import Corpus, Reading
from bilm.errors import DataError, OptionsError
from bilm.studies.usages import (
    UsagesFile,
    collect_usages,
    find_usages,
    parse_query,
    read_dwug,
    read_queries,
    read_usages,
    write_usages,
)
from bilm.studies.usages.usages import COLUMNS, frame_of

THEN = ["the cell was dark", "a monk in his cell", "", "no such word here", "cell after cell"]
NOW = ["the cell divides", "Cells divide", "my phone is a cell phone"]
CONLLU = """1\tThe\tthe\tDET\t_\t_\t0\t_\t_\t_
2\tcells\tcell\tNOUN\t_\t_\t0\t_\t_\t_
3\tcell\tcell\tVERB\t_\t_\t0\t_\t_\t_

"""


def corpus(folder, name, lines):
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [Corpus(path)]


@pytest.fixture
def texts(tmp_path):
    return {"then": corpus(tmp_path, "then.txt", THEN), "now": corpus(tmp_path, "now.txt", NOW)}


@pytest.fixture(scope="module")
def embedder():
    return bilm.ElmoEmbedder("novels-en")


def queries(*lines):
    return [parse_query(line, "--word") for line in lines]


def test_entries_of_a_list_are_forms_names_and_expressions(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("cell\n\nheart: heart hearts /Heart.*/\n/m[ae]n/\n")
    found = read_queries(str(path))
    assert [query.name for query in found] == ["cell", "heart", "/m[ae]n/"]
    assert found[1].forms == {"heart", "hearts"} and found[1].patterns[0].pattern == "Heart.*"


def places(found):
    return [(u.word, u.grouping, u.line, u.position) for u in found.usages]


def test_usages_are_ordered_by_word_grouping_and_place(texts):
    found = find_usages(texts, queries("cell", "divide"))
    assert places(found) == [
        ("cell", "then", 1, 1), ("cell", "then", 2, 4), ("cell", "then", 5, 0),
        ("cell", "then", 5, 2), ("cell", "now", 1, 1), ("cell", "now", 3, 4),
        ("divide", "now", 2, 1),
    ]  # fmt: skip
    assert found.description.counts == {
        "cell": {"then": 4, "now": 2}, "divide": {"then": 0, "now": 1}
    }  # fmt: skip
    then, now = found.description.groupings
    assert (then.sentences, then.tokens, now.tokens) == (4, 16, 11)


def test_ignored_case_and_expressions_match_other_forms(texts):
    found = find_usages(texts, queries("cells", "x: /.*[hd]one/"), ignore_case=True)
    assert [u.form for u in found.usages] == ["Cells", "phone", "phone"]


def test_lemmas_and_parts_of_speech_come_from_conllu(tmp_path):
    (tmp_path / "a.conllu").write_text(CONLLU)
    text = {"a": [Corpus(tmp_path / "a.conllu")]}
    found = find_usages(text, queries("cell"), lemma=True)
    assert [(u.form, u.lemma, u.tag) for u in found.usages] == [
        ("cells", "cell", "NOUN"), ("cell", "cell", "VERB")
    ]  # fmt: skip
    found = find_usages(text, queries("cell"), lemma=True, tags={"NOUN"})
    assert [u.form for u in found.usages] == ["cells"]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=6), max_size=12))
def test_found_usages_are_those_of_a_naive_scan(tmp_path_factory, sentences):
    folder = tmp_path_factory.mktemp("scan")
    text = {"x": corpus(folder, "x.txt", [" ".join(words) for words in sentences])}
    expected = [
        (word, "x", line, k)
        for word in "ab"
        for line, words in enumerate(sentences, 1)
        for k, form in enumerate(words)
        if form == word
    ]
    if not expected:
        return
    assert places(find_usages(text, queries("a", "b"), sample=None)) == expected


def test_blanks_inside_words_do_not_move_positions(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"words": ["New York", "has", "a", "cell"]}\n')
    corpus = Corpus(tmp_path / "a.jsonl", Reading("words"))
    (usage,) = find_usages({"a": [corpus]}, queries("cell")).usages
    assert usage.position == 3 and usage.form == "cell" and usage.words[0] == "New York"
    assert frame_of([usage])["sentence"].tolist() == ["New\u00a0York has a cell"]


def test_sample_is_seeded_and_does_not_depend_on_other_words(tmp_path):
    text = {"x": corpus(tmp_path, "x.txt", ["a b"] * 100)}
    alone = find_usages(text, queries("a"), sample=10, seed=3)
    both = find_usages(text, queries("b", "a"), sample=10, seed=3)
    assert [p for p in places(both) if p[0] == "a"] == places(alone)
    assert len(alone.usages) == 10 and alone.description.counts["a"]["x"] == 100
    assert places(find_usages(text, queries("a"), sample=10, seed=4)) != places(alone)


def test_stored_vectors_are_those_of_the_embedder(texts, embedder, tmp_path):
    path = tmp_path / "u.parquet"
    write_usages(find_usages(texts, queries("cell", "divide")), embedder, path)
    usages = read_usages(path)
    assert usages.layers == [0, 1, 2] and usages.groupings == ["then", "now"]
    for k, row in enumerate(usages.frame.to_dict("records")):
        words = row["sentence"].split(" ")
        assert words[row["position"]] == row["form"]
        expected = embedder.embed_sentence(words)[:, row["position"]]
        for layer in usages.layers:
            np.testing.assert_allclose(usages.vectors(layer)[k], expected[layer], atol=1e-5)
    np.testing.assert_array_equal(usages.vectors(0)[0], usages.vectors(0)[4])  # same form


def test_table_has_the_documented_names_and_types(texts, embedder, tmp_path):
    path = tmp_path / "u.parquet"
    write_usages(find_usages(texts, queries("cell", "divide"), sample=3), embedder, path)
    file = UsagesFile(path)
    assert file.words == ["cell", "divide"]
    schema = parquet.read_schema(path)
    types = [str(schema.field(name).type) for name in ("line", "position")]
    assert types == ["int64", "int32"]
    assert str(schema.field("layer_1").type).startswith("fixed_size_list<")
    assert schema.field("layer_1").type.list_size == embedder.dim
    found = json.loads(schema.metadata[b"bilm.usages"])
    assert found["version"] == 1 and found["sample"] == 3 and found["seed"] == 0
    assert found["counts"] == {"cell": {"then": 4, "now": 2}, "divide": {"then": 0, "now": 1}}
    usages = file.read(layers=[2])
    assert usages.description.dim == embedder.dim
    assert usages.counts.loc["cell"].to_dict() == {"then": 4, "now": 2}
    assert usages.tokens == {"then": 16, "now": 11}
    groups = parquet.ParquetFile(path)
    words = [groups.read_row_group(k)["word"].unique() for k in range(groups.num_row_groups)]
    assert [len(found) for found in words] == [1, 1]


def test_words_of_a_table_are_those_of_its_rows(texts, embedder, tmp_path):
    """Other programs may select some of the rows, and keep the metadata."""
    path = tmp_path / "u.parquet"
    write_usages(find_usages(texts, queries("cell", "divide")), embedder, path)
    chosen = parquet.read_table(path, filters=[("word", "==", "divide")])
    parquet.write_table(chosen, path)
    file = UsagesFile(path)
    assert file.words == ["divide"] and len(list(file.by_word())) == 1
    with pytest.raises(DataError, match="no usages of 'cell'; it contains divide"):
        file.read("cell")


def test_collected_usages_equal_those_of_a_file(texts, embedder, tmp_path):
    path = tmp_path / "u.parquet"
    write_usages(find_usages(texts, queries("cell"), sample=2, seed=1), embedder, path)
    files = {"then": tmp_path / "then.txt", "now": [tmp_path / "now.txt"]}
    found = collect_usages("novels-en", ["cell"], files, sample=2, seed=1)
    expected = read_usages(path)
    pandas.testing.assert_frame_equal(found.frame, expected.frame)
    np.testing.assert_allclose(found.vectors(2), expected.vectors(2), atol=1e-5)


def test_float16_and_chosen_layers(texts, embedder, tmp_path):
    path, half = tmp_path / "u.parquet", tmp_path / "half.parquet"
    found = find_usages(texts, queries("cell"))
    write_usages(found, embedder, path)
    write_usages(found, embedder, half, layers=[2], dtype="float16")
    usages = read_usages(half)
    assert usages.layers == [2] and usages.vectors(2).dtype == np.float32
    np.testing.assert_allclose(usages.vectors(2), read_usages(path).vectors(2), atol=2e-3)
    with pytest.raises(OptionsError, match="layer 1 is not in the table"):
        usages.vectors(1)


def test_nearest_usages_are_ordered_by_cosine(texts, embedder, tmp_path):
    path = tmp_path / "u.parquet"
    write_usages(find_usages(texts, queries("cell")), embedder, path)
    usages = read_usages(path)
    near = usages.nearest(0, 3)
    assert 0 not in near.index and "lemma" not in near
    assert near["similarity"].is_monotonic_decreasing
    a, b = usages.vectors(2)[0], usages.vectors(2)[near.index[0]]
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    assert near["similarity"].iloc[0] == pytest.approx(cosine, abs=1e-6)


HEADER = (
    "lemma\tpos\tdate\tgrouping\tidentifier\tdescription\tcontext\tindexes_target_token\t"
    "indexes_target_sentence"
)


def write_uses(folder, *lines, lemma="cell_nn"):
    path = folder / "data" / lemma / "uses.csv"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")
    return path


def test_dwug_target_is_a_word_of_its_own_in_its_sentence(tmp_path):
    context = "Before it. The “cell”, he said."
    begin = context.index("cell")
    line = f"cell_nn\tnn\t1850\t1\tid-7\tnote\t{context}\t{begin}:{begin + 4}\t11:{len(context)}"
    write_uses(tmp_path, line)
    (usage,) = read_dwug(tmp_path).usages
    assert usage.words == ["The", "“", "cell", "”,", "he", "said."] and usage.form == "cell"
    assert usage[:3] == ("cell_nn", "1", "id-7") and (usage.tag, usage.date) == ("nn", "1850")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cell\tnn\t1\t1\tx\t\ta cell\t2:60\t0:6", "indexes_target_token is '2:60'"),
        ("cell\tnn\t1\t1\tx\t\ta cell\t2:6\t0:1", "is not inside the sentence"),
        ("cell\tnn\t1\t1\tx\t\ta cell\t2:5\t0:6", "is '2:5', 'cel'; expected a range of whole"),
        ("cell\tnn\t1\t1\tx\t\ta cell\t1:2\t0:6", "contains no word"),
        ("cell\tnn\t1\t1\tx\t\ta\tcell\t1:2\t0:6", "more columns than the 9 of the header"),
    ],
)
def test_wrong_lines_of_dwug_are_errors_that_name_file_and_line(line, message, tmp_path):
    write_uses(tmp_path, line)
    with pytest.raises(DataError, match=rf"uses\.csv, line 2: .*{re.escape(message)}"):
        read_dwug(tmp_path)


def test_dwug_ranges_may_be_open_and_blanks_are_missing_values(tmp_path):
    write_uses(tmp_path, "cell_nn\t \t \t1\tx\t \ta cell\t2:\t:")
    (usage,) = read_dwug(tmp_path).usages
    assert usage.form == "cell" and usage.tag is usage.date is usage.description is None


def test_dwug_targets_unlike_their_lemma_are_a_warning(tmp_path, log):
    right = "cell_nn\tnn\t1\t1\tx\t\tCells divide\t0:5\t"
    wrong = "cell_nn\tnn\t1\t1\ty\t\tOld cells divide\t0:3\t"
    write_uses(tmp_path / "a", right, wrong)
    read_dwug(tmp_path / "a")
    assert not log.messages
    write_uses(tmp_path / "b", right, wrong, wrong)
    assert [usage.form for usage in read_dwug(tmp_path / "b").usages] == ["Cells", "Old", "Old"]
    assert "2 of the 3 targets, such as 'Old', do not begin like the lemma" in log.text


def test_command_writes_the_table(texts, tmp_path, run_here):
    path = tmp_path / "u.parquet"
    words = "--word", "cell", "--word", "divide", "--layers", "0,2"
    files = "--input", f"1850={tmp_path / 'then.txt'}", "--input", tmp_path / "now.txt"
    command = "bilm usages", "--model", "novels-en", *words, *files, "--output", path
    done = succeeded(run_here(*command))
    assert "7 usages" in done.stdout and "divide: no usages in 1850" in done.stdout
    frame = pandas.read_parquet(path)
    assert list(frame.columns) == [*COLUMNS, "layer_0", "layer_2"]
    assert list(frame["grouping"].unique()) == ["1850", "now"]
