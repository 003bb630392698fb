"""What commands show: results as JSON, a bar where a person watches, nothing more if quiet."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("the commands are TensorFlow's", allow_module_level=True)
from command_runs import run, words_of
from conftest import golden_cases
from tiny_runs import HELDOUT, TEXT, tiny_run

MODEL = golden_cases("inference")[0].values[0]
SENTENCE = "the river ."


# --- JSON ---


def test_vocab_as_json(tmp_path):
    arguments = ["--input", TEXT, "--output", tmp_path / "v", "--counts", tmp_path / "c", "--json"]
    done = run("bilm vocab", *arguments)
    found = json.loads(done.stdout)
    assert found["output"] == str(tmp_path / "v")
    assert found["words"] == len((tmp_path / "v").read_text().splitlines()) - 3
    counts = [line.split("\t")[1] for line in (tmp_path / "c").read_text().splitlines()]
    assert found["covered"] == found["tokens"] - found["marks"] or found["marks"] == 0
    assert sum(map(int, counts)) == found["covered"]


def test_scores_as_json(run_here, tmp_path):
    (tmp_path / "text").write_text(f"{SENTENCE}\n\nthe bank\n")
    arguments = ["--model", tiny_run("words"), "--input", tmp_path / "text"]
    plain = run_here("bilm score", *arguments).stdout.splitlines()
    lines = run_here("bilm score", *arguments, "--json").stdout.splitlines()
    found = list(map(json.loads, lines))
    assert [" ".join(each["words"]) for each in found] == [SENTENCE, "the bank"]
    for each, line in zip(found, plain, strict=True):
        numbers = list(map(float, line.split("\t")[:4]))
        keys = ("forward", "backward", "mean", "predictions")
        np.testing.assert_allclose([each[key] for key in keys], numbers, atol=1e-5)
        assert [token["token"] for token in each["tokens"]] == ["<S>", *each["words"], "</S>"]
        assert each["tokens"][0]["forward"] is None and each["tokens"][-1]["backward"] is None
        np.testing.assert_allclose(sum(t["forward"] for t in each["tokens"][1:]), numbers[0], 1e-5)


def test_perplexity_and_substitutes_as_json(run_here):
    model = ["--model", tiny_run("words")]
    found = json.loads(run_here("bilm test", *model, "--input", HELDOUT, "--json").stdout)
    mean = (found["forward_perplexity"] * found["backward_perplexity"]) ** 0.5
    np.testing.assert_allclose(found["average_perplexity"], mean, rtol=1e-6)
    assert set(found) == {
        "forward_perplexity",
        "backward_perplexity",
        "predictions_a_direction",
        "average_perplexity",
    }
    place = ["--sentence", SENTENCE, "--position", "1", "--n", "3"]
    found = json.loads(run_here("bilm substitutes", *model, *place, "--json").stdout)
    assert list(found) == ["forward", "backward", "both"]
    assert all(len(words) == 3 and isinstance(words[0][0], str) for words in found.values())


def test_embed_as_json_without_a_log(run_here, tmp_path):
    (tmp_path / "text.jsonl").write_text('{"text": "a b"}\n{"text": ["c"]}\n')
    arguments = ["--model", MODEL / "options.json", "--weights", MODEL / "weights.hdf5"]
    arguments += ["--input", tmp_path / "text.jsonl", "--output", tmp_path / "out.npz"]
    done = run_here("bilm embed", *arguments, "--column=text", "--pool=max", "--json", "--quiet")
    assert json.loads(done.stdout) == {"output": str(tmp_path / "out.npz"), "sentences": 2}
    assert done.stderr == ""
    with np.load(tmp_path / "out.npz") as file:
        assert len(file["vectors"]) == 2
    done = run_here("bilm embed", *arguments)
    assert done.stderr.startswith(f"bilm embed: error: {tmp_path}/text.jsonl: a table; name the")


# --- a vocabulary that is there ---


def test_a_run_that_continues_has_its_vocabulary(run_here, tmp_path):
    done = run_here("bilm train", "--input", TEXT, "--output", tmp_path / "new")
    assert done.returncode == 2 and "--vocab must be given: there is no" in done.stderr
    folder = shutil.copytree(tiny_run("words"), tmp_path / "run")
    arguments = ["--output", folder, "--resume", "must", "--n_steps", 2]
    done = run_here("bilm train", "--input", TEXT, *arguments)
    assert done.returncode == 0 and "finished at step 2" in done.stderr, done.stderr


# --- the bar ---


def watched(command, feed):
    """Run a command with a terminal as standard error; return what is seen there and its output."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        feed()
        seen = b""
        try:
            while piece := os.read(ours, 1 << 16):
                seen += piece
        except OSError:  # how Linux says that the other end is closed
            pass
        out = process.stdout.read()
    os.close(ours)
    assert process.returncode == 0, seen
    return seen.decode(), out.decode()


def slowly(path):
    """Feed a pipe for longer than work that is quick takes."""
    with open(path, "w") as text:
        for seconds in (0, 2.1, 0.4):
            time.sleep(seconds)
            text.write("a b c\n")
            text.flush()


@pytest.mark.parametrize("is_quiet", [False, True])
def test_a_bar_while_a_person_watches(tmp_path, is_quiet):
    os.mkfifo(tmp_path / "pipe")
    command = [*words_of("bilm vocab"), "--input", tmp_path / "pipe", "--output", tmp_path / "v"]
    command += ["--quiet"] * is_quiet
    seen, out = watched(command, lambda: slowly(tmp_path / "pipe"))
    assert out.startswith("wrote ")
    if is_quiet:
        assert seen == ""
    else:
        assert "counting words" in seen and "bytes per second" in seen
        assert "1 shards read: 3 sentences, 9 tokens" in seen


BAR = """
import time
from absl import logging
from bilm.commands.bar import Bar
logging.use_absl_handler()
logging.set_verbosity(logging.INFO)
bar = Bar("working", "things", 100)
for _ in range(2):
    time.sleep(1.1)
    bar.add(25)
time.sleep(0.3)
logging.info("a line of the log")
bar.close()
logging.info("the end")
"""


def test_a_bar_tells_the_time_left():
    seen, _ = watched([sys.executable, "-c", BAR], lambda: None)
    assert "working" in seen and "50%" in seen and "things per second" in seen
    assert re.search(r"0:00:\d\d left", seen)
    assert "a line of the log" in seen and "the end" in seen


WORKING = """
import time
from bilm.commands.bar import Bar
from bilm.progress import show_as, working
show_as(Bar)
for name, seconds in ("quick", 0.1), ("slow", 2.6):
    with working(f"exporting {name}"):
        time.sleep(seconds)
"""


def test_work_that_counts_nothing_shows_a_bar_if_it_takes_long():
    seen, _ = watched([sys.executable, "-c", WORKING], lambda: None)
    assert "exporting slow" in seen and re.search(r"0:00:0[2-9]", seen) and "%" not in seen
    assert "quick" not in seen
