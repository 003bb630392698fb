"""`bilm train`, `test`, `export` and `embed` on runs: one clear line for bad input, and results."""

import json
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from command_runs import assert_fails, environment, run, succeeded, words_of
from tiny_runs import HELDOUT, OPTIONS, TEXT, VOCABULARY, damage, tiny_run, weights_of

from bilm.data.shards import resolve_shards
from bilm.data.vocabulary import Vocabulary
from bilm.export.hdf5 import dump_weights
from bilm.scoring.ngrams import Ngrams, text_ids
from bilm.scoring.scorer import load_scorer
from bilm.scoring.verdict import Comparison
from bilm.storage.stored_model import open_model

FAST = {"char_cnn": None, "bidirectional": False, "lstm": OPTIONS["lstm"] | {"n_layers": 1}}
NOT_WHOLE = "not a whole checkpoint ("


def words(values):
    return [f"--{name}={value}" for name, value in values.items()]


@pytest.fixture
def train_arguments(tmp_path):
    """Return a function from changes to the arguments of a small training run."""

    def arguments(options=OPTIONS | FAST, **changes):
        if not isinstance(options, str):
            (tmp_path / "tiny.json").write_text(json.dumps(options))
            options = str(tmp_path / "tiny.json")
        values = {"input": TEXT, "vocab": VOCABULARY, "output": tmp_path / "run"}
        return words(values | {"options": options, "n_steps": 2} | changes)

    return arguments


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"input": "nowhere/*"}, "nowhere/*: no file matches"),
        ({"heldout": "nowhere/*"}, "nowhere/*: no file matches"),
        ({"vocab": "nowhere.txt"}, "nowhere.txt: cannot be read: No such file"),
        ({"options": "nowhere.json"}, "nowhere.json: cannot be read: No such file"),
        ({"options": "huge"}, "huge: unknown options, expected a path or one of compact, medium, "),
        ({"options": OPTIONS | {"lstm": None}}, "tiny.json: lstm: found null, expected an object"),
        ({"options": OPTIONS | {"lr": 1}}, "tiny.json: lr: unknown key"),
        ({"gpus": "99"}, "GPU 99 was requested"),
        ({"n_gpus": "99"}, "was requested, but TensorFlow finds"),
        ({"n_gpus": "0", "cpu_replicas": "99"}, "99 CPU replicas were requested"),
        ({"output": VOCABULARY}, "vocab.txt"),
    ],
)
def test_train_refuses_bad_input(changes, expected, run_here, train_arguments, tmp_path):
    arguments = train_arguments(**changes)
    assert_fails(run_here("bilm train", *arguments), expected)
    assert not (tmp_path / "run").exists()


def test_train_refuses_the_folder_of_another_run(run_here, train_arguments):
    done = run_here("bilm train", *train_arguments(output=tiny_run("characters")))
    assert_fails(done, "lstm is", "was requested")


def test_train_makes_vocabulary_and_heldout_text_of_a_new_run(run_here, train_arguments, tmp_path):
    text = tmp_path / "text.txt"
    lines = [f"the word {number} is a number\n" for number in range(100)]
    text.write_text("".join(lines))
    folder = tmp_path / "new"
    arguments = ["--input", text, "--output", folder, "--options", tmp_path / "tiny.json"]
    for left in (folder, tmp_path / "run"):  # by commands that ended before a checkpoint
        left.mkdir()
        for name in (".lock", "vocab.txt", "heldout.txt"):
            (left / name).write_text("a b c\n")
    done = run_here("bilm train", *train_arguments(n_steps=1))
    assert done.returncode == 0 and "held-out perplexity" not in done.stderr, done.stderr
    for n_steps in (1, 2):  # the second continues the run
        done = run_here("bilm train", *arguments, "--n_steps", n_steps)
        assert done.returncode == 0 and f"step {n_steps} of {n_steps}" in done.stderr, done.stderr
        assert "held-out perplexity" in done.stderr
    assert (folder / "heldout.txt").read_text() == "".join(lines[95:])
    assert (folder / "best/vocab.txt").read_text().split()[3:6] == ["a", "is", "number"]
    (folder / "heldout.txt").unlink()
    assert_fails(run_here("bilm train", *arguments), "heldout.txt: found 0 sentences to leave out")


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("cut", "); no other checkpoint in "),
        ("index cut", f"{NOT_WHOLE}not an sstable"),
        ("no data", NOT_WHOLE),
        ("options", "options.json: invalid JSON: Expecting value: line 1 column 10"),
    ],
)
def test_damaged_run_is_named(what, expected, run_here, train_arguments, tmp_path):
    folder = Path(shutil.copytree(tiny_run("characters"), tmp_path / "broken"))
    if what == "options":
        (folder / "options.json").write_text('{"lstm": ')
    else:
        damage(folder, 2, what)
    out = tmp_path / "out" / "weights.hdf5"
    assert_fails(run_here("dump_weights.py", "--save_dir", folder, "--outfile", out), expected)
    assert not out.parent.exists()
    arguments = ["--test_prefix", HELDOUT, "--vocab_file", VOCABULARY, "--save_dir", folder]
    assert_fails(run_here("run_test.py", *arguments), expected)
    if what != "options":
        done = run_here("bilm train", *train_arguments(OPTIONS, output=folder, n_steps=4))
        assert_fails(done, f"{folder}/model.ckpt-2: {NOT_WHOLE}")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"input": "nowhere/*"}, "nowhere/*: no file matches"),
        ({"vocab": "nowhere.txt"}, "nowhere.txt: cannot be read: No such file"),
        ({"vocab": TEXT.replace("*", "a.txt")}, "marks <S> </S> <UNK>"),
        ({"model": "nowhere"}, "nowhere: found neither a file or folder of this path nor a model"),
        (
            {"start": "checkpoint", "batch_size": 128},
            "=128: the checkpoint has 2 rows; use --bat",
        ),
    ],
)
def test_test_refuses_bad_input(changes, expected, run_here):
    values = {"input": HELDOUT, "vocab": VOCABULARY, "model": tiny_run("characters")}
    assert_fails(run_here("bilm test", *words(values | changes)), expected)


def test_options_that_contradict_each_other_are_wrong_use(run_here):
    arguments = ["--input=a", "--vocab=b", "--model=c", "--stateless", "--start=checkpoint"]
    done = run_here("bilm test", *arguments)
    assert_fails(done, "--stateless --start; see bilm test --help", status=2)


def test_perplexity_by_start_and_export_of_a_run(run_here, tmp_path):
    folder = tiny_run("words")
    values = {"input": HELDOUT, "vocab": VOCABULARY, "model": folder, "batch_size": 2}
    means = []
    for start in ([], ["--stateless"], ["--start=checkpoint"]):
        done = run_here("bilm test", *words(values), "--decimals=9", *start)
        *_, n_predictions, last = done.stdout.splitlines()
        assert done.returncode == 0
        assert n_predictions == "PREDICTIONS PER DIRECTION = 248"  # 218 words in 30 sentences
        assert last.startswith("AVERAGE PERPLEXITY = ")
        means.append(float(last.split(" = ")[1]))
    assert len(set(means)) == 3 and all(20 < mean < 60 for mean in means)
    out = tmp_path / "elmo" / "weights.hdf5"
    done = run_here("dump_weights.py", "--save_dir", folder, "--outfile", out)
    written = out, out.parent / "options.json", out.parent / "README.md"
    assert (done.returncode, done.stdout) == (0, "".join(f"wrote {path}\n" for path in written))


def test_test_command_states_unknown_words_and_the_perplexity_without_them(run_here, tmp_path):
    folder, text = tiny_run("words"), tmp_path / "text"
    known = VOCABULARY.read_text(encoding="utf-8").split()[3]
    text.write_text(f"{known} zzz\nzzz yyy {known} xxx\n", encoding="utf-8")
    command = ["bilm test", "--model", folder, "--input", text, "--stateless"]
    found = json.loads(run_here(*command, "--json").stdout)
    scores = list(load_scorer(folder).score(map(str.split, text.read_text().splitlines())))
    forward = np.concatenate([score.forward[score.is_known] for score in scores])
    backward = [score.backward[np.append(True, score.is_known[:-1])] for score in scores]
    without = np.exp(-(forward.mean() + np.concatenate(backward).mean()) / 2)
    assert found["perplexity_without_unknown_words"] == pytest.approx(without)
    stored = Ngrams.of_model(open_model(folder))
    ids = text_ids(resolve_shards(text), Vocabulary(VOCABULARY))
    compared = Comparison.of(ids, Vocabulary(VOCABULARY), stored)
    name = "bigrams_of_the_training_text_perplexity"
    assert found[name] == pytest.approx(compared.bigrams)
    assert found[f"{name}_without_unknown_words"] == pytest.approx(compared.known_bigrams)
    frequencies = found["word_frequencies_of_the_training_text_perplexity"]
    assert frequencies == pytest.approx(compared.words)
    done = run_here(*command)
    assert done.stdout.startswith("READING = single sentences\n")
    assert f"AVERAGE PERPLEXITY = {found['average_perplexity']:.2f}\n" in done.stdout
    assert f"without unknown words, 66.7 %: {without:.2f}; bigrams of the" in done.stderr
    assert done.stderr.endswith(f"\n{found['verdict'][-1]}\n")
    done = run_here("bilm test", "--model", folder, "--input", TEXT, "--stateless")
    assert "is training text of the run: use held-out text" in done.stderr


def test_model_without_counts_is_compared_with_frequencies_of_the_tested_text(run_here, tmp_path):
    folder, text = shutil.copytree(tiny_run("words"), tmp_path / "run"), tmp_path / "text"
    (folder / "ngrams.hdf5").unlink()
    known = VOCABULARY.read_text(encoding="utf-8").split()[3]
    text.write_text(f"{known} zzz\nzzz yyy {known} xxx\n", encoding="utf-8")
    arguments = ["--model", folder, "--input", text, "--json"]
    found = json.loads(run_here("bilm test", *arguments).stdout)
    logs = np.log((counts := np.array([2, 4, 2])) / (8 - 1 + 49))  # of the word, <UNK>, ends
    frequencies = found["word_frequencies_of_the_tested_text_perplexity"]
    assert frequencies == pytest.approx(np.exp(-(counts @ logs) / 8))


def test_finetune_names_the_model_in_a_warning_about_the_order_of_its_words(run_here, tmp_path):
    """Its words are stored with its softmax."""
    model, text = tmp_path / "elmo", tmp_path / "text"
    dump_weights(tiny_run("characters"), model, include_softmax=True)
    *_, rarest = VOCABULARY.read_text(encoding="utf-8").split()
    text.write_text(f"{rarest} {rarest} .\n" * 50, encoding="utf-8")
    values = {"model": model, "input": text, "output": tmp_path / "run", "n_steps": 1}
    done = run_here("bilm finetune", *words(values), "--batch_size=2", "--unroll_steps=5")
    assert done.returncode == 0, done.stderr
    expected = f"{model / 'weights_softmax.hdf5'}: not sorted by descending frequency in this text"
    assert expected in done.stderr


def test_train_elmo_accepts_options_of_train_and_resumes(run_here, train_arguments, tmp_path):
    """A new run of this script has the reference's recipe, whose model is too large for a test."""
    values = {"train_prefix": TEXT, "vocab_file": VOCABULARY, "save_dir": tmp_path / "run"}
    _, _, _, options, n_steps = train_arguments()
    done = run_here("train_elmo.py", *words(values), options, n_steps)
    assert done.returncode == 0 and "step 2 of 2" in done.stderr, done.stderr
    before = weights_of(tmp_path / "run")
    done = run_here("train_elmo.py", *words(values), "--n-steps=3", "--resume=must")
    assert done.returncode == 0 and "step 3 of 3" in done.stderr, done.stderr
    assert weights_of(tmp_path / "run").keys() == before.keys()


@pytest.mark.slow
def test_training_on_cpu_replicas(run_here, train_arguments, tmp_path):
    arguments = train_arguments(n_gpus=0, cpu_replicas=2, batch_size=3, heldout=HELDOUT)
    done = succeeded(run("bilm train", *arguments))
    assert "starting at step 0 of 2 on CPU:0, CPU:1: 2 replicas x 3 rows" in done.stderr
    assert "step 2 of 2" in done.stderr
    assert f"saved every 1000 steps or 15 minutes to {tmp_path / 'run'}\n" in done.stderr
    assert "Sharding" not in done.stderr
    (line,) = (line for line in done.stderr.splitlines() if "held-out perplexity" in line)
    tested = run_here("bilm test", "--model", tmp_path / "run", "--input", HELDOUT).stdout
    assert f"perplexity {tested.rsplit(' = ')[-1].strip()} (running text" in line
    done = run_here("bilm train", *arguments)
    assert done.returncode == 0
    assert "run: finished at step 2" in done.stderr


@pytest.mark.slow
def test_interrupted_training_is_continued_by_the_same_command(run_here, train_arguments):
    n_steps, step = 1000, 0
    arguments = train_arguments(n_gpus=0, n_steps=n_steps)
    command, pipe = [*words_of("bilm train"), *arguments], subprocess.PIPE
    for number in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen(command, stderr=pipe, text=True, env=environment()) as process:
            assert any(f"step {step + 1} of" in line for line in iter(process.stderr.readline, ""))
            process.send_signal(number)
            rest = process.stderr.read()
        assert process.returncode == 130
        *_, stopped, last = rest.splitlines()
        assert stopped.startswith("stopped at step ")
        assert last == "the same command continues the run"
        before, step = step, int(stopped.split()[3].rstrip(","))
        assert before < step < n_steps
    done = succeeded(run_here("bilm train", *arguments))
    assert f"continuing at step {step} of {n_steps}" in done.stderr
    assert f"step {n_steps:,} of {n_steps:,}" in done.stderr
