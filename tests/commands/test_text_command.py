"""`bilm text`: a corpus of any form as one sentence per line."""

import pytest
from command_runs import assert_fails, run

from bilm.data.readers import Corpus

pytestmark = pytest.mark.clients


@pytest.mark.parametrize(
    ("name", "content", "flags", "expected"),
    [
        ("r.csv", 'n,t\n1,"a  good\nfilm"\n2,\n3,bad', ["--column=t"], ["a good film", "", "bad"]),
        ("r.jsonl", '{"t": ["a", "b"]}\n{"t": "c d"}', ["--column=t"], ["a b", "c d"]),
        ("r.conllu", "1\tdo\n2\tn't\n\n1\tx\n", [], ["do n't", "x"]),
        ("r.conllu", "1-2\tdu\n1\tde\n2\tle\n3\tx\n", ["--surface"], ["du x"]),
        ("r.txt", "\ufeffcaf\u00e9 \u2028 .\n\nb", [], ["caf\u00e9 .", "", "b"]),
    ],
)
def test_each_input_form_becomes_lines_of_words(name, content, flags, expected, run_here, tmp_path):
    corpus, text = tmp_path / name, tmp_path / "text"
    corpus.write_text(content, encoding="utf-8")
    done = run_here("bilm text", "--input", corpus, "--output", text, *flags)
    n_words = sum(len(line.split()) for line in expected)
    wrote = f"wrote {text}: {len(expected)} sentences, {n_words} words\n"
    assert (done.returncode, done.stdout) == (0, wrote), done.stderr
    assert text.read_text(encoding="utf-8") == "".join(f"{line}\n" for line in expected)
    assert [record.words for record in Corpus(text)] == [line.split() for line in expected]


def test_files_that_a_pattern_matches_are_joined(run_here, tmp_path):
    (tmp_path / "b.csv").write_text("t\nx y\n")
    (tmp_path / "a.csv").write_text("t\nz\n")
    files = ["--input", tmp_path / "*.csv", "--output", tmp_path / "text"]
    assert run_here("bilm text", *files, "--column=t").returncode == 0
    assert (tmp_path / "text").read_text() == "z\nx y\n"


def test_profile_prints_shares_and_sentences(run_here, tmp_path):
    (tmp_path / "t").write_text("A cat\u200b sat .\na dog\nb\nc\n", encoding="utf-8")
    done = run_here("bilm text", "--profile", tmp_path / "t")
    assert done.returncode == 0 and done.stdout.endswith("'A cat\\u200b sat .'\n'a dog'\n'b'\n")
    assert "1 of the first 8 words contain U+200B" in done.stdout
    assert_fails(run_here("bilm text", "--profile", "t", "--output", "x"), "--output", status=2)


def test_bad_corpus_leaves_no_output(run_here, tmp_path):
    (tmp_path / "r.csv").write_text('text\ngood\n"open')
    files = ["--input", tmp_path / "r.csv", "--output", tmp_path / "text"]
    assert_fails(run_here("bilm text", *files, "--column=text"), f"{tmp_path}/r.csv, line 3: ")
    assert_fails(run_here("bilm text", *files), "--column is missing")
    files[-1] = files[1]
    assert_fails(run_here("bilm text", *files, "--column=text"), "is also an input")
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


def test_tokenize_splits_by_spacys_rules(tmp_path):
    pytest.importorskip("spacy", reason="needs the extra spacy: make test-clients")
    (tmp_path / "r.csv").write_text('text\n"It isn\'t bad, is it?"\n')
    text = tmp_path / "text"
    files = ["--input", tmp_path / "r.csv", "--column=text", "--output", text]
    done = run("bilm text", *files, "--tokenize=en")
    assert (done.returncode, done.stdout) == (0, f"wrote {text}: 1 sentences, 8 words\n")
    assert done.stderr == ""  # spaCy imports TensorFlow, which says nothing here
    assert text.read_text() == "It is n't bad , is it ?\n"
