"""Commands start without Keras and TensorFlow if their work is short or computes nothing."""

import functools
import re

import h5py
import numpy as np
import pytest
from command_runs import output_of

from bilm import ElmoEmbedder

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
MODEL = ["--model", "novels-en"]
COMMANDS = {
    "score": [*MODEL, "--input", "one.txt"],
    "surprisal": [*MODEL, "--input", "one.txt", "--top", "2"],
    "fill": [*MODEL, "--input", "gap.txt"],
    "substitutes": [*MODEL, "--sentence", SENTENCE, "--position", "1"],
    "minimal-pairs": [*MODEL, "--input", "pairs.jsonl"],
    "memory": [*MODEL, "--input", "two.txt", "--heldout", "one.txt", "--output", "memory.hdf5"],
    "test": [*MODEL, "--input", "one.txt"],
    "test --stateless": [*MODEL, "--input", "one.txt"],
    "embed": [*MODEL, "--input", "two.txt", "--output", "vectors.hdf5"],
    "info": ["novels-en"],
    "info --json": ["novels-en"],
    "models": [],
    "models --cached": [],
    "text": ["--input", "two.txt", "--output", "out.txt"],
    "vocab": ["--input", "two.txt", "--output", "vocab.txt"],
}


@functools.cache
def status_and_modules(command, folder, **settings):
    """Return the line of RUN after a command, and all that is printed."""
    name, *flags = command.split()
    arguments = [name, *COMMANDS[command], *flags]
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
def test_short_work_does_not_import_keras(command, folder, monkeypatch):
    monkeypatch.setenv("BILM_CACHE", str(folder / "cache"))
    last, _ = status_and_modules(command, folder)
    assert last == "0 False False"


def test_embedded_vectors_of_a_short_text_are_those_of_keras(folder):
    status_and_modules("embed", folder)
    expected = ElmoEmbedder("novels-en").embed_batch([SENTENCE.split(), ["He", "rose", "."]])
    with h5py.File(folder / "vectors.hdf5") as file:
        for k, vectors in enumerate(expected):
            np.testing.assert_allclose(file[str(k)], vectors, atol=1e-5)


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
