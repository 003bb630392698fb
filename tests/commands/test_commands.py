"""The commands as a user runs them: what goes wrong ends in one clear line, what works says so."""

import json
import shutil
import signal
import subprocess
import sys

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("the commands are TensorFlow's", allow_module_level=True)
from command_runs import BIN, assert_fails, environment, run
from tiny_runs import HELDOUT, OPTIONS, TEXT, VOCABULARY, tiny_run

from bilm.training.export import dump_weights

FAST = {"char_cnn": None, "bidirectional": False}


# --- in processes of their own ---


def test_dump_of_a_truncated_checkpoint(broken_run, tmp_path):
    """Where TensorFlow was made quieter too: no command is louder for it."""
    arguments = ["--model", broken_run("data"), "--output", tmp_path / "w"]
    done = run("bilm export", *arguments, TF_CPP_MIN_LOG_LEVEL="3")
    assert_fails(done, "model.ckpt-2: not a whole checkpoint (Read less bytes than requested)")
    assert not list(tmp_path.glob("w*"))


def test_all_that_tensorflow_says_on_request(tmp_path):
    done = run(
        "dump_weights.py", "--save_dir", tmp_path, "--outfile", "w", TF_CPP_MIN_LOG_LEVEL="0"
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) > 1


# --- what goes wrong ---


@pytest.fixture
def broken_run(tmp_path):
    """Give a function that copies a run and breaks it."""

    def copy(what):
        folder = shutil.copytree(tiny_run("characters"), tmp_path / f"broken_{what}")
        if what in ("data", "index"):
            (path,) = folder.glob(f"*.{what}*")
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        elif what == "options":
            (folder / "options.json").write_text('{"lstm": ')
        elif what == "no checkpoint":
            for path in [folder / "checkpoint", *folder.glob("model.ckpt*")]:
                path.unlink()
        elif what == "no data":
            next(folder.glob("*.data*")).unlink()
        return folder

    return copy


@pytest.fixture
def train_arguments(tmp_path):
    """Give a function from changes to the arguments of a small training run."""

    def arguments(options=OPTIONS | FAST, **changes):
        if not isinstance(options, str):
            (tmp_path / "tiny.json").write_text(json.dumps(options))
            options = str(tmp_path / "tiny.json")
        values = {"train_prefix": TEXT, "vocab_file": VOCABULARY, "save_dir": tmp_path / "run"}
        values |= {"options": options, "n_steps": 2} | changes
        return [f"--{name}={value}" for name, value in values.items()]

    return arguments


@pytest.fixture
def no_marks(tmp_path):
    path = tmp_path / "no_marks.txt"
    path.write_text("the\nof\n")
    return path


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"train_prefix": "nowhere/*"}, "nowhere/*: no file matches"),
        ({"train_prefix": "nowhere.txt"}, "nowhere.txt: no file matches"),
        ({"heldout_prefix": "nowhere/*"}, "nowhere/*: no file matches"),
        ({"vocab_file": "nowhere.txt"}, "nowhere.txt: cannot be read: No such file"),
        ({"options": "nowhere.json"}, "nowhere.json: cannot be read: No such file"),
        ({"options": "huge"}, "huge: no such options, expected a path or one of medium, original"),
        ({"options": OPTIONS | {"lstm": None}}, "tiny.json: lstm: found null, expected an object"),
        ({"options": OPTIONS | {"lr": 1}}, "tiny.json: lr: unknown key"),
        ({"options": []}, "tiny.json: top level: found [], expected an object"),
        ({"gpus": "99"}, "GPU 99 was requested"),
        ({"gpus": "one"}, "--gpus=one: expected different numbers, such as 0,1"),
        ({"gpus": "0,0"}, "--gpus=0,0: expected different numbers, such as 0,1"),
        ({"gpus": "²"}, "--gpus=²: expected different numbers, such as 0,1"),
        ({"n_gpus": "99"}, "was requested, but TensorFlow finds"),
        ({"n_gpus": "0", "cpu_replicas": "99"}, "99 CPU replicas were requested"),
        ({"save_dir": VOCABULARY}, "vocab.txt"),
    ],
)
def test_train_fails(changes, expected, run_here, train_arguments, tmp_path):
    assert_fails(run_here("train_elmo.py", *train_arguments(**changes)), expected)
    assert not (tmp_path / "run").exists()


def test_train_without_a_key(run_here, train_arguments):
    options = {name: value for name, value in OPTIONS.items() if name != "dropout"}
    done = run_here("train_elmo.py", *train_arguments(options))
    assert_fails(done, "tiny.json: dropout: missing, expected a number in [0, 1)")


def test_train_with_no_json(run_here, train_arguments, broken_run):
    path = broken_run("options") / "options.json"
    done = run_here("train_elmo.py", *train_arguments(str(path)))
    assert_fails(done, f"{path}: invalid JSON at line 1, column 10")


def test_train_without_marks(run_here, train_arguments, no_marks):
    done = run_here("train_elmo.py", *train_arguments(vocab_file=no_marks))
    assert_fails(done, no_marks, "<S> </S> <UNK> missing")


@pytest.mark.parametrize("what", ["data", "index", "no data"])
def test_train_on_from_a_truncated_checkpoint(what, run_here, train_arguments, broken_run):
    folder = broken_run(what)
    done = run_here("train_elmo.py", *train_arguments(OPTIONS, save_dir=folder, n_steps=4))
    assert_fails(done, f"{folder}/model.ckpt-2: not a whole checkpoint")


def test_train_in_a_folder_of_another_run(run_here, train_arguments):
    done = run_here("train_elmo.py", *train_arguments(save_dir=tiny_run("characters")))
    assert_fails(done, "options.json: char_cnn is")


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("data", "not a whole checkpoint (Read less bytes than requested)"),
        ("index", "not a whole checkpoint (not an sstable"),
        ("no data", "not a whole checkpoint ("),
        ("options", "options.json: invalid JSON at line 1, column 10"),
    ],
)
def test_broken_run(what, expected, run_here, broken_run, tmp_path):
    folder = broken_run(what)
    out = tmp_path / "out" / "weights.hdf5"
    assert_fails(run_here("dump_weights.py", "--save_dir", folder, "--outfile", out), expected)
    assert not out.parent.exists()
    arguments = ["--test_prefix", HELDOUT, "--vocab_file", VOCABULARY, "--save_dir", folder]
    assert_fails(run_here("run_test.py", *arguments), expected)


def test_a_run_without_checkpoints(run_here, broken_run, tmp_path):
    folder = broken_run("no checkpoint")
    arguments = ["--model", folder, "--output", tmp_path / "out"]
    expected = f"{folder}: no whole checkpoint in this folder"
    assert_fails(run_here("bilm export", *arguments), expected)
    expected = f"{folder}: found none, expected one .hdf5 file with the weights, or the checkpoints"
    assert_fails(run_here("bilm test", "--model", folder, "--input", HELDOUT), expected)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"test_prefix": "nowhere/*"}, "nowhere/*: no file matches"),
        ({"vocab_file": "nowhere.txt"}, "nowhere.txt: cannot be read: No such file"),
        ({"vocab_file": TEXT.replace("*", "a.txt")}, "marks <S> </S> <UNK>"),
        ({"save_dir": "nowhere"}, "nowhere: no such file or folder"),
        ({"start": "checkpoint"}, "--batch_size=128: the checkpoint has 2 rows"),
    ],
)
def test_run_test_fails(changes, expected, run_here):
    values = {"test_prefix": HELDOUT, "vocab_file": VOCABULARY, "save_dir": tiny_run("characters")}
    arguments = [f"--{name}={value}" for name, value in (values | changes).items()]
    assert_fails(run_here("run_test.py", *arguments), expected)


def test_another_models_vocabulary(run_here, tmp_path):
    (tmp_path / "short.txt").write_text("<S>\n</S>\n<UNK>\nw0\n")
    arguments = ["--save_dir", tiny_run("characters"), "--vocab_file", tmp_path / "short.txt"]
    expected = "short.txt: 4 words, but the model was trained with 49"
    assert_fails(run_here("run_test.py", "--test_prefix", HELDOUT, *arguments), expected)
    arguments += ["--outfile", tmp_path / "w.hdf5", "--include_softmax"]
    assert_fails(run_here("dump_weights.py", *arguments), expected)
    assert not list(tmp_path.glob("w.*"))


def test_outfile_that_cannot_be_written(run_here):
    arguments = ["--save_dir", tiny_run("characters"), "--outfile", VOCABULARY / "w.hdf5"]
    assert_fails(run_here("dump_weights.py", *arguments), "vocab.txt")


def test_embeddings_of_a_truncated_weight_file(run_here, tmp_path):
    weight_file, options_file = dump_weights(tiny_run("characters"), tmp_path / "weights.hdf5")
    (tmp_path / "a.txt").write_text("a sentence\n")
    weight_file.write_bytes(weight_file.read_bytes()[: weight_file.stat().st_size // 2])
    arguments = ["--dataset_file", tmp_path / "a.txt", "--options_file", options_file]
    arguments += ["--weight_file", weight_file, "--outfile", tmp_path / "out.hdf5"]
    done = run_here("dump_embeddings.py", *arguments)
    assert_fails(done, f"{weight_file}: not a whole HDF5 file")
    assert not (tmp_path / "out.hdf5").exists()


# --- flags ---


def test_stray_argument(run_here, train_arguments):
    done = run_here("train_elmo.py", *train_arguments(), "more.txt")
    assert_fails(done, "unexpected argument 'more.txt'; every value needs its --flag", status=2)


def test_flags_that_contradict_each_other(run_here):
    arguments = ["--test_prefix=a", "--vocab_file=b", "--save_dir=c"]
    done = run_here("run_test.py", *arguments, "--stateless", "--start=checkpoint")
    assert_fails(done, "leave out --start=checkpoint; see run_test.py --help", status=2)


# --- what works ---


def test_measure_and_dump(run_here, tmp_path):
    folder = tiny_run("words")
    arguments = ["--test_prefix", HELDOUT, "--vocab_file", VOCABULARY, "--save_dir", folder]
    means = []
    for start in ([], ["--stateless"], ["--start=checkpoint"]):
        done = run_here("run_test.py", *arguments, "--batch_size=2", *start)
        *_, n_predictions, last = done.stdout.splitlines()
        assert done.returncode == 0
        assert n_predictions == "PREDICTIONS A DIRECTION = 248"  # 218 words in 30 sentences
        assert last.startswith("AVERAGE PERPLEXITY = ")
        means.append(float(last.split(" = ")[1]))
    assert len(set(means)) == 3 and all(20 < mean < 60 for mean in means)
    out = tmp_path / "elmo" / "weights.hdf5"
    done = run_here("dump_weights.py", "--save_dir", folder, "--outfile", out)
    assert done.returncode == 0
    written = out, out.parent / "options.json", out.parent / "README.md"
    assert done.stdout == "".join(f"wrote {path}\n" for path in written)


@pytest.mark.slow
def test_replicas_on_the_cpu(run_here, train_arguments, tmp_path):
    arguments = train_arguments(n_gpus=0, cpu_replicas=2, batch_size=3)
    done = run("train_elmo.py", *arguments)
    assert done.returncode == 0, done.stderr
    assert "starting at step 0 of 2 on CPU:0, CPU:1: 2 replicas x 3 rows" in done.stderr
    assert "step 2 of 2" in done.stderr
    assert f"saved {tmp_path / 'run' / 'model.ckpt-2'}" in done.stderr
    assert "Sharding" not in done.stderr
    done = run_here("train_elmo.py", *arguments)
    assert done.returncode == 0
    assert "run: finished at step 2" in done.stderr


@pytest.mark.slow
def test_interrupted_run_is_continued_by_the_same_command(run_here, train_arguments):
    n_steps, step = 1000, 0
    arguments = train_arguments(n_gpus=0, n_steps=n_steps)
    command = [sys.executable, BIN / "train_elmo.py", *arguments]
    pipe = subprocess.PIPE
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
    done = run_here("train_elmo.py", *arguments)
    assert done.returncode == 0, done.stderr
    assert f"continuing at step {step} of {n_steps}" in done.stderr
    assert f"step {n_steps:,} of {n_steps:,}" in done.stderr
