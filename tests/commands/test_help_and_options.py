"""Help without TensorFlow, completion, and one line for wrong use of options."""

import os
import re
import sys
from pathlib import Path

import pytest
from command_runs import BIN, help_texts, run_code, run_words

import bilm
from bilm.commands.main import cli, run

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
EXAMPLES = [path for path in EXAMPLES if "running import" in path.read_text("utf-8")]
COMMANDS = cli.list_commands(None)
SCRIPTS = sorted(path.name for path in BIN.glob("*.py"))
PROGRAMS = ["bilm", *(f"bilm {name}" for name in COMMANDS), *SCRIPTS]
WITHOUT_REQUIRED = "bilm", "bilm cache", "bilm doctor", "bilm info", "bilm models", "bilm text"


helps = pytest.fixture(scope="module")(help_texts)


def shown_options(text):
    found = re.findall(r"^  (?:-h, )?--(\w+)(?: / --(\w+))?", text, re.MULTILINE)
    return {name for names in found for name in names if name}


@pytest.fixture
def refused(capsys):
    """Return a function that checks that a command line is wrong use, reported in one line."""

    def check(words, expected):
        assert run(cli, "bilm", words) == 2
        out, err = capsys.readouterr()
        name = " ".join(["bilm", *words[:1]]) if words and words[0] in COMMANDS else "bilm"
        (line,) = err.splitlines()
        assert line.startswith(f"{name}: error: ") and line.endswith(f"; see {name} --help")
        assert expected in line and out == ""

    return check


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_needs_neither_tensorflow_nor_numpy_and_its_examples_use_its_options(name, helps):
    assert helps[name].startswith("Usage: ")
    assert ("[required]" in helps[name]) == (name not in WITHOUT_REQUIRED)
    if name.startswith("bilm "):
        examples = re.findall(rf"^ +.*{name}((?:.*\\\n)*.*)$", helps[name], re.MULTILINE)
        used = {flag for text in examples for flag in re.findall(r" --(\w+)", text)}
        assert len(examples) > 1 and used <= shown_options(helps[name])


def test_help_of_bilm_lists_the_commands_in_one_line_each(helps):
    lines = helps["bilm"].splitlines()
    listed = [line.split()[0] for line in lines if re.match(r"  \w[\w-]* +[A-Z]", line)]
    assert listed == [*COMMANDS]
    assert not [line for line in lines[1:] if line.endswith("...")]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_help_of_examples_needs_no_tensorflow(path):
    script = "import runpy, sys; sys.modules.update(tensorflow=None, keras=None); del sys.argv[0]\n"
    script += "runpy.run_path(sys.argv[0], run_name='__main__')"
    done = run_code(script, path, "--help", PYTHONPATH=f"{path.parent}:{ROOT}")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("usage: ")


def test_version(capsys):
    assert run(cli, "bilm", ["--version"]) == 0
    assert capsys.readouterr().out == f"bilm {bilm.__version__}\n"


def test_help_of_scripts_shows_their_own_defaults(helps):
    def default(program, flag):
        shown = re.search(rf"\n  --{flag} .*?\[default: \((.*?)\)", helps[program], re.DOTALL)
        return shown[1].split()

    assert default("train_elmo.py", "options")[-1] == "original_2018"
    assert default("bilm train", "options")[-1] == "auto"
    assert default("run_test.py", "batch_size") == ["256"]


def test_train_help_shows_the_usual_options_first(helps):
    usual, advanced = map(helps["bilm train"].index, ("\nUsual:\n", "\nAdvanced"))
    assert 5 < len(shown_options(helps["bilm train"][usual:advanced])) <= 10
    assert "--input" not in helps["bilm train"][advanced:].partition("\n\nThe text")[0]


@pytest.mark.parametrize(
    ("script", "command", "expected"),
    [
        ("train_elmo.py", "train", {"save_dir", "vocab_file", "train_prefix"}),
        ("run_test.py", "test", {"test_prefix", "vocab_file", "save_dir", "batch_size"}),
        ("dump_weights.py", "export", {"save_dir", "outfile"}),
    ],
)
def test_scripts_in_bin_have_the_options_of_the_reference(script, command, expected, helps):
    flags = set(re.findall(r"--(\w+)", helps[script]))
    assert flags >= expected | shown_options(helps[f"bilm {command}"])


COMPLETE = """
eval "$(_BILM_COMPLETE=bash_source {bilm})"
complete -p bilm > /dev/null
COMP_WORDS=({words}) COMP_CWORD={place}
_bilm_completion bilm
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


COMPLETED = [(["expo"], ["export"]), (["embed", "--pool", ""], ["none", "mean", "max"])]


@pytest.mark.parametrize(("words", "expected"), COMPLETED)
def test_bash_completes_commands_options_and_values(words, expected, tmp_path):
    program = tmp_path / "bilm"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m bilm "$@"\n')
    program.chmod(0o755)
    quoted = " ".join(f"'{word}'" for word in ("bilm", *words))
    script = COMPLETE.format(bilm=program, words=quoted, place=len(words))
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = run_words(["bash", "-c", script], PATH=path, PYTHONPATH=str(ROOT))
    assert (done.stdout.split(), done.stderr) == (expected, "")


TRAIN = ["train", "--input=i", "--output=o", "--vocab=v"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["trian"], "No such command 'trian'. Did you mean 'train'?"),
        ([], "Missing command"),
        *(([name], "Missing option '--") for name in ("train", "embed", "score", "vocab")),
        (["train", "--stepz=3"], "--n_steps"),
        (["train", "--output="], "'--output': found '', expected a file name"),
        (["train", "--output", "--n_steps=3"], "found '--n_steps=3', expected a file name"),
        (["text", "--output=-"], "found '-', expected a file name"),
        (["train", "--output=s3://a/b"], "'s3://a/b' is a URL; expected a local path"),
        (["train", "--output"], "'--output' requires an argument"),
        (["train", "--output=a", "--output=b"], "--output is given twice"),
        ([*TRAIN, "--gpus=0,0"], "'0,0': expected only distinct values"),
        (["vocab", "--input", "a", "b"], "unexpected argument 'b'; every value needs its --option, "
         "and a pattern of files must be in quotes"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line(words, expected, refused):
    refused(words, expected)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--sample_softmax"], {"sample_softmax": True}),
        (["--no-sample-softmax", "--n-steps", "7"], {"sample_softmax": False, "n_steps": 7}),
        ([], {"sample_softmax": None, "n_steps": None, "seed": 0}),
    ],
)
def test_option_names_with_dashes_or_underscores(words, expected):
    finetune = cli.get_command(None, "finetune")
    context = finetune.make_context("x", ["--model=m", "--output=o", "--input=i", *words])
    assert {name: context.params[name] for name in expected} == expected


def test_each_option_belongs_to_a_group():
    for name in COMMANDS:
        command = cli.get_command(None, name)
        assert [option.name for option in command.ungrouped_options] == ["quiet"], name
