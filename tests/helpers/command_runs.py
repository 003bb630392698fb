"""Running `bilm` and the scripts of `bin/` in tests, in new processes or in this one."""

import atexit
import csv
import functools
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

BIN = Path(__file__).parents[2] / "bin"
HELP = """
import json, os, runpy, sys
from contextlib import redirect_stdout
from io import StringIO
paths = sys.argv[1:]
sys.modules.update(dict.fromkeys(("tensorflow", "keras", "numpy", "h5py", "rich")))
os._exit = sys.exit
def printed(start, *words):
    sys.argv, out = [*words, "--help"], StringIO()
    try:
        with redirect_stdout(out):
            start()
    except SystemExit as stopped:
        assert not stopped.code, words
    return out.getvalue()
from bilm.commands.main import cli, main
found = {"bilm": printed(main, "bilm")}
found |= {f"bilm {name}": printed(main, "bilm", name) for name in cli.list_commands(None)}
for path in paths:
    start = lambda: runpy.run_path(path, run_name="__main__")
    found[path.rpartition("/")[2]] = printed(start, path)
print(json.dumps(found))
"""


def words_of(command):
    """Return the words that start `bilm`, `bilm train`, or `train_elmo.py` in `bin/`."""
    program, *name = command.split()
    return [sys.executable, *([BIN / program] if _is_script(program) else ["-m", program, *name])]


def _is_script(program):
    return program.endswith(".py")


def run(command, *arguments, **how):
    """Run a command in a new process: see `words_of` and `run_words`."""
    return run_words([*words_of(command), *arguments], **how)


def run_code(code, *arguments, **how):
    """Run Python code in a new process: see `run_words`."""
    return run_words([sys.executable, "-c", code, *arguments], **how)


def output_of(code, *arguments, **how):
    """Run Python code in a new process: see `printed_by`."""
    return printed_by([sys.executable, "-c", code, *arguments], **how)


def printed_by(words, **how):
    """Run a program, which must succeed, as `run_words` does; return what it prints."""
    return succeeded(run_words(words, **how)).stdout


def succeeded(done):
    """Return a finished program, which must have succeeded."""
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def run_words(words, cwd=None, timeout=600, **variables):
    """Run a program in a folder with environment variables in addition to `environment()`."""
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, cwd=cwd,
        env=environment(**variables), timeout=timeout,
    )  # fmt: skip


def environment(**variables):
    """Return the environment of a command: this one without settings of TensorFlow's."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    return env | variables


@functools.cache
def help_texts():
    """Return the help by program: "bilm", "bilm train", "train_elmo.py". It is printed where
    TensorFlow, NumPy and others cannot be imported."""
    command = [sys.executable, "-c", HELP, *BIN.glob("*.py")]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.fixture
def run_here(monkeypatch, capfd):
    """Run commands in this process, without the seconds that TensorFlow needs to start. As in a new
    process, where Keras is not imported, NumPy computes short texts."""
    import tensorflow as tf
    from absl import logging  # not before pytest holds standard error

    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    monkeypatch.setattr(atexit, "_run_exitfuncs", lambda: None)  # pytest needs its own later
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setattr(
        "bilm.inference.backend.sys", SimpleNamespace(modules={}, platform=sys.platform)
    )
    tf.config.list_logical_devices()  # starts TensorFlow, as an earlier test may or may not have
    verbosity, level = logging.get_verbosity(), tf.get_logger().level

    def run_here(command, *arguments):
        capfd.readouterr()  # what the fixtures have left
        program, *name = command.split()
        monkeypatch.setattr(sys, "argv", [str(BIN / program), *name, *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            if _is_script(program):
                runpy.run_path(str(BIN / program), run_name="__main__")
            else:
                runpy.run_module(program, run_name="__main__")
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(command, stopped.value.code or 0, out, err)

    yield run_here
    logging.set_verbosity(verbosity)
    tf.get_logger().setLevel(level)


def assert_fails(done, *expected, status=1):
    """One line of the log says what is wrong, after lines with counts; nothing is printed."""
    assert done.returncode == status
    assert done.stdout == ""
    *before, last = done.stderr.splitlines()
    assert all(line.endswith((" predictions", " vocabulary")) for line in before), done.stderr
    assert last.startswith(f"{program(done.args)}: error: ")
    for part in expected:
        assert str(part) in last


def rows_of(text, delimiter="\t"):
    """Return the rows of a printed table, by the names in its first line."""
    return list(csv.DictReader(text.splitlines(), delimiter=delimiter))


def program(args):
    """Return the name of a command in its errors, from its name or the words that started it."""
    if isinstance(args, str):
        return args
    return " ".join(args[2:4]) if args[1] == "-m" else Path(args[1]).name
