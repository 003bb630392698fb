"""Help without TensorFlow, completion, and one line for wrong use of options."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from command_runs import BIN, program, run, words_of

import bilm
from bilm.commands import main
from bilm.commands.main import COMMANDS

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(
    path for path in (ROOT / "examples").glob("*.py") if "running import" in path.read_text("utf-8")
)
SCRIPTS = sorted(path.name for path in BIN.glob("*.py"))
PROGRAMS = ["bilm", *(f"bilm {name}" for name in COMMANDS), *SCRIPTS]
WITHOUT_REQUIRED = "bilm", "bilm cache", "bilm doctor", "bilm info", "bilm models"
WITHOUT_LIBRARIES = """
import runpy, sys
sys.modules.update(dict.fromkeys(("tensorflow", "keras", "numpy", "h5py")))  # imports are errors
sys.argv = sys.argv[1:]
if sys.argv[0] == "-m":
    del sys.argv[0]
    runpy.run_module("bilm", run_name="__main__", alter_sys=True)
else:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def start_words(name):
    """Return the words that start `bilm`, a subcommand or a script of `bin/`."""
    return [sys.executable, "-m", "bilm"] if name == "bilm" else words_of(name)


def help_of(name, *flags):
    words = [sys.executable, "-c", WITHOUT_LIBRARIES, *start_words(name)[1:], *flags]
    return subprocess.run(words, capture_output=True, text=True, timeout=300)


def shown_options(text):
    found = re.findall(r"^  (?:-h, )?--(\w+)(?: / --(\w+))?", text, re.MULTILINE)
    return {name for names in found for name in names if name}


def assert_wrong_use(done, *expected):
    """One line names the command, what is wrong and where help is; the status is 2."""
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    name = program(done.args)
    assert line.startswith(f"{name}: error: ") and line.endswith(f"; see {name} --help")
    for part in expected:
        assert str(part) in line


# --- help ---


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_needs_neither_tensorflow_nor_numpy_and_its_examples_use_its_options(name):
    done = help_of(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: ")
    assert ("[required]" in done.stdout) == (name not in WITHOUT_REQUIRED)
    if name.startswith("bilm "):
        examples = re.findall(rf"^ +.*{name}((?:.*\\\n)*.*)$", done.stdout, re.MULTILINE)
        used = {flag for text in examples for flag in re.findall(r" --(\w+)", text)}
        assert len(examples) > 1 and used <= shown_options(done.stdout)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_help_of_examples_needs_no_tensorflow(path):
    script = WITHOUT_LIBRARIES.replace(', "numpy", "h5py"', "")
    words = [sys.executable, "-c", script, path, "--help"]
    environment = os.environ | {"PYTHONPATH": f"{path.parent}:{ROOT}"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")


def test_help_of_bilm_lists_the_commands_and_imports_neither_numpy_nor_h5py():
    script = "import sys\nfrom bilm.commands.main import main\ntry:\n    main()\nfinally:\n"
    script += "    print(sorted({'numpy', 'h5py', 'tensorflow', 'rich'} & sys.modules.keys()))"
    words = [sys.executable, "-c", script, "--help"]
    *lines, imported = subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
    listed = [line.split()[0] for line in lines if re.match(r"  \w[\w-]* +[A-Z]", line)]
    assert (listed, imported) == (list(COMMANDS), "[]")
    assert not [line for line in lines[1:] if line.endswith("...")]


def test_version_and_short_help_option():
    assert help_of("bilm", "--version").stdout == f"bilm {bilm.__version__}\n"
    assert help_of("bilm train", "-h").stdout == help_of("bilm train", "--help").stdout


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("train_elmo.py", {"save_dir", "vocab_file", "train_prefix"}),
        ("run_test.py", {"test_prefix", "vocab_file", "save_dir", "batch_size"}),
        ("dump_weights.py", {"save_dir", "outfile"}),
    ],
)
def test_scripts_in_bin_have_the_options_of_the_reference(script, expected):
    assert shown_options(help_of(script, "--help").stdout) == {*expected, "help", "quiet"}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("embed", ["none|mean|max", ".parquet", ".npz", ".hdf5", ".csv", ".conllu", ".fasta"]),
        ("export", ["hdf5|saved_model|onnx"]),
        ("train", ["adagrad|adam|muon", "none|linear|cosine", "original_2018"]),
    ],
)
def test_help_lists_the_values_that_the_code_implements(name, values):
    text = help_of(f"bilm {name}", "--help").stdout
    assert [value for value in values if value not in text] == []


# --- completion ---

COMPLETE = """
eval "$(_BILM_COMPLETE=bash_source {bilm})"
complete -p bilm > /dev/null
COMP_WORDS=({words}) COMP_CWORD={place}
_bilm_completion bilm
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completions(folder, *words):
    """Return what bash offers for the last word."""
    bilm_program = folder / "bilm"
    bilm_program.write_text(f'#!/bin/sh\nexec {sys.executable} -m bilm "$@"\n')
    bilm_program.chmod(0o755)
    quoted = " ".join(f"'{word}'" for word in ("bilm", *words))
    script = COMPLETE.format(bilm=bilm_program, words=quoted, place=len(words))
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment)
    assert not done.stderr, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["expo"], ["export"]),
        (["embed", "--pre"], ["--precision"]),
        (["embed", "--pool", ""], ["none", "mean", "max"]),
        (["export", "--to", "s"], ["saved_model"]),
        (["train", "--options", "orig"], ["original", "original_2018"]),
    ],
)
def test_bash_completes_commands_options_and_values(words, expected, tmp_path):
    assert completions(tmp_path, *words) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_valid(shell, tmp_path):
    done = run("bilm", _BILM_COMPLETE=f"{shell}_source")
    assert done.returncode == 0 and "_BILM_COMPLETE" in done.stdout
    (tmp_path / "script").write_text(done.stdout)
    if shutil.which(shell):
        subprocess.run([shell, "-n", tmp_path / "script"], check=True)


# --- wrong use ---


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in WITHOUT_REQUIRED])
def test_missing_options_are_one_line(name, run_here):
    assert_wrong_use(run_here(name), "Missing option '--")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["trian"], "unknown command 'trian'; did you mean train?"),
        (["xyz"], "unknown command 'xyz'; expected one of text, vocab,"),
        ([], "Missing command"),
    ],
)
def test_unknown_command_is_one_line_with_a_suggestion(words, expected):
    done = run("bilm", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"bilm: error: {expected}")
    assert done.stderr.endswith("; see bilm --help\n") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--stepz=3"], "--n_steps"),
        (["--output="], "'--output': the value is empty; expected a file name"),
        (["--output", "--n_steps=3"], "'--n_steps=3' looks like an option; expected a name"),
        (["--output=-"], "'-' is a standard stream, not a file; expected a name, such as ./-"),
        (["--output=~no_such_user/x"], "the home folder of ~no_such_user is unknown"),
        (["--output"], "'--output' requires an argument"),
        (["--output=a", "--output=b"], "--output is given twice"),
        *((["--n_steps", n], f"'{n}' is not a valid integer") for n in ("few", "1_0", "٣", "²")),
        *((["--learning_rate", n], f"'{n}' is not a valid ") for n in ("few", "1_0.5", "٣")),
        (["--n_steps=0"], "0 is not in the range x>=1"),
        (["--seed=-1"], "-1 is not in the range 0<=x<=2147483647"),
        (["--checkpoint_minutes=nan"], "nan is not a finite number"),
        (["--resume=perhaps"], "'perhaps' is not one of auto, never, must"),
        (["--tf32=perhaps"], "'--tf32' does not take a value"),
        (["--n_steps", "9" * 40], f"exceeds {2**63 - 1}"),
        (["--join_minutes=1e9"], "1000000000.0 is not in the range 0<=x<=525600"),
        (["--gpus=one"], "'one': expected distinct GPU numbers separated by commas, such as 0,1"),
        (["--gpus=0,0"], "'0,0': expected distinct GPU numbers separated by commas, such as 0,1"),
        *((["--gpus", n], f"'{n}': expected distinct GPU numbers") for n in ("²", "1_0", "٣")),
        (["more"], "unexpected argument 'more'; every value needs its --option"),
    ],
)
def test_train_command_refuses_invalid_option_values(arguments, expected, run_here):
    assert_wrong_use(run_here("bilm train", *arguments), expected)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--no_tf32", "--sample_softmax"], {"tf32": False, "sample_softmax": True}),
        (["--no-tf32", "--n-steps", "7"], {"tf32": False, "n_steps": 7}),
        ([], {"tf32": True, "sample_softmax": None, "n_steps": None, "seed": 0}),
    ],
)
def test_option_names_with_dashes_or_underscores(words, expected):
    finetune = main.cli.get_command(None, "finetune")
    context = finetune.make_context("x", ["--model=m", "--output=o", "--input=i", *words])
    assert {name: context.params[name] for name in expected} == expected


def test_text_may_contain_dashes_and_numbers_a_sign():
    substitutes = main.cli.get_command(None, "substitutes")
    words = ["--model=m", "--sentence", "- a --b c", "--position"]
    assert substitutes.make_context("x", [*words, "+1"]).params["sentence"] == "- a --b c"
    with pytest.raises(click.UsageError, match="-1 is not in the range x>=0"):
        substitutes.make_context("x", [*words, "-1"])
    with pytest.raises(click.UsageError, match="is not UTF-8"):
        substitutes.make_context("x", ["--model=m", "--sentence=\udcff", "--position=0"])


def test_pattern_that_the_shell_has_expanded(tmp_path, run_here):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("a\n")
    done = run_here(
        "bilm vocab", "--input", *sorted(tmp_path.iterdir()), "--output", tmp_path / "v"
    )
    found = f"unexpected argument '{tmp_path}/b.txt' and 1 more"
    assert_wrong_use(done, f"{found}; put a pattern of files in quotes, such as '{tmp_path}/*.txt'")
    assert not (tmp_path / "v").exists()


def test_tilde_is_the_home_folder(tmp_path):
    (tmp_path / "text").write_text("a\n")
    done = run("bilm vocab", "--input=~/te*", "--output=~/v", HOME=str(tmp_path))
    assert done.stdout.split()[:2] == ["wrote", f"{tmp_path}/v:"]
    assert (tmp_path / "v").exists()


def test_each_option_belongs_to_a_group():
    """Shared options get the group in which a command declares them."""
    context = click.Context(click.Command("x"))
    for name in COMMANDS:
        for parameter in main.cli.get_command(context, name).params:
            is_common = parameter.name == "quiet" or isinstance(parameter, click.Argument)
            assert is_common or parameter.group, f"{name}: {parameter.name}"


# --- where training runs ---


def test_a_system_without_file_locks_is_named():
    program = "import sys; sys.modules['fcntl'] = None\n"
    names = [f"bilm.{name}" for name in ("storage.checkpoint", "storage.checkpoint_folder")]
    program += f"for name in {names}:\n"
    program += "    sys.modules[name] = type(sys)(name)\n"  # they would import TensorFlow
    program += "    sys.modules[name].__getattr__ = lambda name: None\n"
    program += "from bilm.errors import BilmError\n"
    program += "try:\n    import bilm.training.run_folder\n"
    program += "except BilmError as error:\n    print(error)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("training runs on Linux and macOS")
