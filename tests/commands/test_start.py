"""Commands start without Keras and TensorFlow if their work is short."""

import functools
import re

import pytest
from command_runs import output_of

RUN = """
import sys
from bilm.commands.main import cli, run
from bilm.studies.gaps import fitting
fitting.N_STEPS = 1
status = run(cli, "bilm", sys.argv[1:])
print(status, "keras" in sys.modules, "tensorflow" in sys.modules)
"""
SENTENCE = "She rose from her chair ."
NUMBER = re.compile(r"-?\d+(\.\d+)?")
PAIR = (
    '{"sentence_good": "She rose .", "sentence_bad": "Rose she .", "linguistics_term": "order", '
    '"UID": "swap"}'
)
COMMANDS = {
    "score": ["--input", "one.txt"],
    "surprisal": ["--input", "one.txt", "--top", "2"],
    "fill": ["--input", "gap.txt"],
    "substitutes": ["--sentence", SENTENCE, "--position", "1"],
    "minimal-pairs": ["--input", "pairs.jsonl"],
    "memory": ["--input", "two.txt", "--heldout", "one.txt", "--output", "memory.hdf5"],
    "embed": ["--input", "two.txt", "--output", "vectors.hdf5"],
    "test": ["--input", "one.txt"],
    "test --stateless": ["--input", "one.txt"],
}


@functools.cache
def status_and_modules(command, folder, **settings):
    """Return the line of RUN after a command with the packaged model."""
    name, *flags = command.split()
    arguments = [name, "--model", "novels-en", *COMMANDS[command], *flags]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("KERAS_BACKEND", raising=False)
        printed = output_of(RUN, *arguments, cwd=folder, **settings)
    return printed.splitlines()[-1], printed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "one.txt").write_text(f"{SENTENCE}\n")
    (folder / "two.txt").write_text(f"{SENTENCE}\nHe rose .\n")
    (folder / "gap.txt").write_text("She [MASK] from her chair .\n")
    (folder / "pairs.jsonl").write_text(f"{PAIR}\n")
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_short_scoring_does_not_import_keras(command, folder):
    last, _ = status_and_modules(command, folder)
    assert last == "0 False False"


@pytest.mark.parametrize("name", ["info novels-en --json", "models --cached", "text", "vocab"])
def test_command_without_a_model_to_compute_imports_neither_keras_nor_tensorflow(name, folder):
    files = ["--input", "one.txt", "--output", "a.txt"] if name in ("text", "vocab") else []
    printed = output_of(RUN, *name.split(), *files, cwd=folder, BILM_CACHE=str(folder))
    assert printed.splitlines()[-1] == "0 False False"


@pytest.mark.parametrize("command", ["score", pytest.param("test", marks=pytest.mark.slow)])
def test_a_chosen_backend_of_keras_scores_alike(command, folder):
    """The user's choice of Keras' backend is used for a short text, too."""
    last, expected = status_and_modules(command, folder, KERAS_BACKEND="tensorflow")
    assert last == "0 True True"
    _, found = status_and_modules(command, folder)
    numbers, words = [], []
    for output in (found, expected):
        cells = [cell for line in output.splitlines()[:-1] for cell in line.split()]
        numbers.append([float(cell) for cell in cells if NUMBER.fullmatch(cell)])
        words.append([cell for cell in cells if not NUMBER.fullmatch(cell)])
    assert words[0] == words[1]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-4)
