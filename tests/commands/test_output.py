"""Results of commands: JSON and tables."""

import json
import os
import subprocess

import numpy as np
import pytest
from command_runs import rows_of, run, succeeded, words_of
from stored_files import CASE, OPTIONS, WEIGHTS
from tiny_runs import tiny_run

from bilm.commands.output import as_json

pytestmark = pytest.mark.clients

SENTENCE = "w1 w2 w3"
# Quotes break careless readers, and pandas reads NA as a missing value by default.
ODD = 'w1 iPhone "NA" w2 NA'


def test_embed_as_json_with_quiet_logs_nothing(run_here, tmp_path):
    (tmp_path / "text.jsonl").write_text('{"text": "a b"}\n{"text": ["c"]}\n')
    arguments = ["--model", OPTIONS, "--weights", WEIGHTS]
    arguments += ["--input", tmp_path / "text.jsonl", "--output", tmp_path / "out.npz"]
    done = run_here("bilm embed", *arguments, "--column=text", "--pool=max", "--json", "--quiet")
    assert json.loads(done.stdout) == {"output": str(tmp_path / "out.npz"), "sentences": 2}
    assert done.stderr == ""
    with np.load(tmp_path / "out.npz") as file:
        assert len(file["vectors"]) == 2
    done = run_here("bilm embed", *arguments)
    assert done.stderr.startswith(f"bilm embed: error: {tmp_path}/text.jsonl: --column is missing")


def test_json_has_null_for_nan_and_escapes_control_characters():
    text = as_json({"a": [1.5, float("nan"), (float("inf"),)], "b": "\x1b\x7f\x9b\u00e9"})
    assert text == '{"a": [1.5, null, [null]], "b": "\\u001b\\u007f\\u009b\u00e9"}'


@pytest.fixture
def scored(run_here, tmp_path):
    """Return a function that scores two sentences and returns what is printed."""
    (tmp_path / "text").write_text(f"{SENTENCE}\n\n{ODD}\n")

    def score(*more, model="words"):
        arguments = ["--model", tiny_run(model), "--input", tmp_path / "text", *more]
        done = succeeded(run_here("bilm score", *arguments))
        return done.stdout

    return score


def test_scores_mark_unknown_words_in_each_output(scored):
    unknown = ["iPhone", '"NA"', "NA"]
    first, second = rows_of(scored())
    assert (first["unknown"], second["unknown"]) == ("", " ".join(unknown))
    assert (first["sentence"], second["sentence"]) == (SENTENCE, ODD)


@pytest.mark.parametrize(("ending", "delimiter"), [(".csv", ","), (".TSV", "\t")])
def test_scores_in_a_file_are_those_on_standard_output(scored, tmp_path, ending, delimiter):
    out = tmp_path / f"scores{ending}"
    printed = scored()
    assert scored("--output", out) == ""
    assert rows_of(out.read_text(), delimiter) == rows_of(printed)


def test_scores_in_parquet(scored, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="make test-clients")
    out = tmp_path / "scores.parquet"
    scored("--output", out)
    found = parquet.read_table(out).to_pydict()
    assert found["sentence"] == [SENTENCE, ODD]
    assert found["forward"][0] < 0 and found["predictions"][1] == len(ODD.split()) + 1


def test_substitutes_as_text_and_json(run_here):
    arguments = ["--model", tiny_run("words"), "--sentence", "w1 iPhone w2 w3", "--position=2"]
    arguments += ["--n", "3"]
    done = run_here("bilm substitutes", *arguments)
    assert done.stdout.split("\n", 2)[1].split() == ["forward", "backward", "both"]
    assert done.stderr == "not in the vocabulary: iPhone\n"
    found = json.loads(run_here("bilm substitutes", *arguments, "--json").stdout)
    assert found.pop("unknown") == ["iPhone"] and found.pop("is_known")
    assert list(found) == ["forward", "backward", "both"]


@pytest.mark.parametrize("command", ["text", "score"])
def test_a_dash_is_standard_input(command, tmp_path):
    more = {"text": ["--output", tmp_path / "out"], "score": ["--model", tiny_run("words")]}
    words = [*words_of(f"bilm {command}"), "--input", "-", *more[command]]
    done = subprocess.run(words, input="w1 w2\n", capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_commands_that_read_twice_accept_a_redirected_file_and_refuse_a_pipe(tmp_path):
    (tmp_path / "text").write_text("a b\nc\n")
    out = tmp_path / "out.npz"
    command = [*words_of("bilm embed"), "--model", CASE, "--input", "-", "--output", out]
    done = subprocess.run(command, input="a b\n", capture_output=True, text=True)
    assert done.returncode == 2
    assert "standard input: not a regular file, but the text is read more" in done.stderr
    os.mkfifo(tmp_path / "pipe")
    texts = ["--input", tmp_path / "text", "--heldout", tmp_path / "pipe"]
    done = run("bilm train", *texts, "--output", tmp_path / "run", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2 and "pipe: not a regular file" in done.stderr
    with open(tmp_path / "text") as text:
        done = subprocess.run(command, stdin=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"wrote {out}: 2 sentences\n")


def test_control_characters_from_files_are_escaped(tmp_path):
    (tmp_path / "text").write_text("the \x1b]0;title\x07 \x9b31m .\n")
    arguments = ["--model", tiny_run("words"), "--input", tmp_path / "text"]
    done = run("bilm score", *arguments)
    assert done.stdout.splitlines()[1].endswith("the \\x1b]0;title\\x07 \\x9b31m .")
    done = run("bilm vocab", "--input", tmp_path / "\x1b[2J", "--output", tmp_path / "v")
    assert done.stderr.endswith("\\x1b[2J: no file matches this name or pattern\n")
