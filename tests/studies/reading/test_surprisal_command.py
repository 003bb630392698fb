"""`bilm surprisal`: equal to `Scorer`, keyed by sentence and position, in all forms."""

import re

import numpy as np
import pytest
from command_runs import assert_fails, rows_of, succeeded
from tiny_runs import tiny_run

import bilm
from bilm.data.readers import form
from bilm.storage.hdf5 import save_hdf5
from bilm.studies.reading import load_trigrams, surprisal_table

TEXT = 'w1 w2 w3\n\nw1 iPhone "NA" NA\n'


@pytest.fixture
def measured(run_here, tmp_path):
    """Return a function that writes an input, measures it and returns the rows."""

    def measure(text=TEXT, *more, name="text", model="words"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        files = "--model", tiny_run(model), "--input", tmp_path / name
        done = succeeded(run_here("bilm surprisal", *files, *more))
        return rows_of(done.stdout)

    return measure


def shown(value):
    if isinstance(value, float):
        return "" if value != value else f"{value:.6g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("model", ["words", "characters", "forward_only"])
def test_surprisal_command_prints_the_columns_of_surprisal_table(measured, model):
    scorer, text = bilm.load_scorer(tiny_run(model)), 'w1 w2 w3\nw4 | iPhone "NA" NA\n'
    for more, how in (
        (["--context=1", "--top=2"], {"context": 1, "top": 2}),
        (["--regions=|", "--top=1"], {"top": 1, "mark": "|"}),
    ):
        table = surprisal_table(scorer, text.splitlines(), **how)
        rows = measured(text, *more, model=model)
        assert {*table} == {*rows[0]}
        for name in rows[0]:
            assert [row[name] for row in rows] == [shown(value) for value in table[name]], name


def test_surprisal_context_is_of_the_same_file(run_here, tmp_path):
    (tmp_path / "a.txt").write_text("w1 w2\nw3 w4\n")
    (tmp_path / "b.txt").write_text("w3 w4\n")
    command = ["bilm surprisal", "--model", tiny_run("words"), "--input", tmp_path / "*.txt"]
    runs = run_here(*command), run_here(*command, "--context=1")
    plain, read = ([row["forward"] for row in rows_of(run.stdout)] for run in runs)
    assert read[:2] == plain[:2] and read[4:] == plain[4:] == plain[2:4]
    assert read[2] != plain[2]


@pytest.mark.parametrize(
    ("name", "text", "more", "ids"),
    [
        ("a.csv", "item,text\n7,w1 w2\nx,\ny,w3\n", ["--column=text", "--id_column=item"], "7 7 y"),
        ("a.jsonl", '{"t": ["w1", "w2"]}\n{"t": ""}\n{"t": "w3"}\n', ["--column=t"], ""),
        ("a.conllu", "1\tw1\n2-3\tx\n2\tw2\n\n1\tw3\n", [], ""),
    ],
)
def test_surprisal_of_tables_and_conllu(measured, name, text, more, ids):
    rows = measured(text, *more, name=name)
    last = "1" if name.endswith("conllu") else "2"
    assert [(row["sentence"], row["word"]) for row in rows] == [
        ("0", "w1"), ("0", "w2"), (last, "w3"),
    ]  # fmt: skip
    assert [row["id"] for row in rows if "id" in row] == ids.split()


def test_surprisal_of_items_with_context_and_conditions(measured, run_here, tmp_path):
    table = "item,condition,sentence\n1,,w1 w2\n1,a,w3 | w4\n1,b,w4\n2,,w2\n2,a,w3 | w4\n"
    kept = ["--column=sentence", "--keep=item,condition", "--regions=|", "--region_names=x,y"]
    rows = measured(table, *kept, "--items=item", "--context=1", name="a.csv")
    places = [row["item"] + row["condition"] + row["region_name"] for row in rows]
    assert places == ["1", "1", "1ax", "1ay", "1b", "2", "2ax", "2ay"]  # "" without marks
    alone = measured(table, *kept, name="a.csv")
    same = [a["forward"] == b["forward"] for a, b in zip(rows, alone, strict=True)]
    assert same == [True, True, False, False, False, True, False, False]
    after = measured("w1 w2\nw4\n", "--context=1")  # not after the sentence of condition a
    assert rows[4]["forward"] == after[2]["forward"]
    command = ["bilm surprisal", "--model", tiny_run("words"), "--input", tmp_path / "a.csv"]
    (tmp_path / "a.csv").write_text(table + "1,a,w2\n")
    done = run_here(*command, *kept, "--items=item", "--context=1")
    assert done.returncode == 1 and "a.csv: other rows are between those of 1" in done.stderr
    (tmp_path / "a.csv").write_text(table + "3,,\n3,a,w2\n")
    done = run_here(*command, *kept, "--items=item", "--context=1")
    assert done.returncode == 1 and "a.csv, sentence 5: no words; complete its item" in done.stderr
    done = run_here(*command, "--column=sentence", "--items=item", "--context=1")
    assert_fails(done, "--items item: --keep must contain this column")
    done = run_here(*command, "--column=sentence", "--keep=condition,sentence")
    assert_fails(done, "--keep sentence: the result has another column of this name")


def test_mark_of_regions_is_not_split(measured, monkeypatch):
    monkeypatch.setattr(form, "tokenizer", lambda language: re.compile(r"\w+|\S").findall)
    rows = measured("w1 <R> w2. <R> w3\n", "--tokenize=en", "--regions=<R>")
    assert [row["region"] + row["word"] for row in rows] == ["0w1", "1w2", "1.", "2w3"]


def test_marks_of_regions_that_are_read_as_words_are_a_warning(run_here, tmp_path):
    (tmp_path / "text").write_text("w1 // w2\nw3 w4 // w1\n")
    command = ["bilm surprisal", "--model", tiny_run("words"), "--input", tmp_path / "text"]
    read = "2 of 2 sentences contain //, which was read as a word"
    assert read in run_here(*command).stderr
    assert read not in run_here(*command, "--regions", "//").stderr


def test_trigram_surprisal_by_the_counts_of_bilm_vocab(measured, run_here, tmp_path):
    text, counts = tmp_path / "train.txt", tmp_path / "counts.hdf5"
    text.write_text("w1 w2 w3\nw1 w2 w3\nw1 x\n")
    command = ["bilm vocab", "--input", text, "--output", tmp_path / "v", "--ngrams", counts]
    assert run_here(*command, "--min_count=2").returncode == 0
    rows = measured("w1 w2\nw1 w2 | w4 x w3\n", "--ngrams", counts, "--context=1", "--regions=|")
    assert [row["trigram_known"] for row in rows] == ["true"] * 4 + ["false"] * 2 + ["true"]
    scorer, trigrams = bilm.load_scorer(tiny_run("words")), load_trigrams(counts)
    table = surprisal_table(scorer, ["w1 w2", "w1 w2 w4 x w3"], trigrams=trigrams)
    assert [row["trigram"] for row in rows] == [shown(bits) for bits in table["trigram"]]
    assert table["trigram"][:2] == table["trigram"][2:4]  # without a context
    # </S> w1 w2 occurs twice of three times, the pair w1 w2 after one word and w2 after w1 only.
    words = (1 - 0.75 + 0.75 * 6 / 6) / 6.75  # w2, one of 6 words; 6 pairs end in the 5 that occur
    pairs = (1 - 0.75 + 0.75 * 3 * words) / 2.75
    assert table["trigram"][1] == pytest.approx(-np.log2((2 - 0.75 + 0.75 * 3 * pairs) / 3.75))

    assert_fails(run_here(*command[:-1], text), f"{text}: is also an input or another output")
    save_hdf5(counts, {"ngrams": np.zeros((1, 3), np.int32), "vocabulary": np.array(["a"], object)})
    command = ["bilm surprisal", "--model", tiny_run("words"), "--input", text]
    done = run_here(*command, "--ngrams", counts)
    assert_fails(done, "counts.hdf5: ngrams does not contain counts of triples of words")


def test_surprisal_errors_are_one_line(run_here, tmp_path):
    text = tmp_path / "text.csv"
    text.write_text("words\n\n")
    command = ["bilm surprisal", "--model", tiny_run("words"), "--input", text]
    done = run_here(*command, "--column", "words", "--output", tmp_path / "out.xlsx")
    assert_fails(done, "out.xlsx': expected the ending .csv or .tsv", status=2)
    done = run_here(*command, "--column", "words", "--output", text)
    assert_fails(done, "is also an input")
    done = run_here(*command, "--column", "words", "--output", tmp_path / "out.csv")
    assert_fails(done, "text.csv: found no words, expected at least one sentence")
    assert [path.name for path in tmp_path.iterdir()] == ["text.csv"]
