"""What README.md shows works: its Python runs, and what it names is there."""

import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import keras
import pytest
from conftest import golden_cases

if keras.backend.backend() != "tensorflow":
    pytest.skip("the README is about TensorFlow", allow_module_level=True)

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PROSE = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
BEFORE, MIGRATION = PROSE.split("## Coming from elsewhere")
# The first column of these tables has other projects' names.
OURS = BEFORE + re.sub(r"^\|[^|]*\|", "|", MIGRATION, flags=re.MULTILINE)
COMMANDS = [*sorted(f"bin/{p.name}" for p in (ROOT / "bin").glob("*.py")), "benchmarks/train.py"]


def blocks(language):
    """Give the line and the content of each block."""
    for found in re.finditer(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL):
        yield TEXT.count("\n", 0, found.start(1)), found[1]


def shell_commands():
    """Give the words of each command, without what `#` starts."""
    for _, block in blocks("sh"):
        for line in block.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield words


@cache
def flags_of(script):
    command = [sys.executable, script, "--help"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    return set(re.findall(r"^  --(?:\[no\])?(\w+):", text, flags=re.MULTILINE))


def example_model():
    """Give a stored model of the kind that the README speaks of: 50 characters, two directions."""
    for case in golden_cases("inference"):
        options = json.loads((case.values[0] / "options.json").read_text())
        if options["char_cnn"]["max_characters_per_token"] == 50 and options["bidirectional"]:
            return case.values[0]
    raise AssertionError("no such case")


def test_python_runs(tmp_path, monkeypatch):
    for name in ("options.json", "weights.hdf5", "vocab.txt"):
        shutil.copy(example_model() / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    names = {}
    for line, block in blocks("python"):
        code = compile("\n" * line + block, str(ROOT / "README.md"), "exec")
        exec(code, names)  # one after the other, as a reader goes through them
    assert names["output"]["lm_embeddings"].shape[0] == 1
    assert (names["first"]["lm_embeddings"] != names["second"]["lm_embeddings"]).any()
    assert names["tagger"].output_shape == (None, None, 17)


def test_shell_commands_exist():
    commands = list(shell_commands())
    assert commands
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for program, first, *rest in commands:
        if program == "make":
            assert first in targets
        else:
            assert program == "python" and (ROOT / first).is_file()
            flags = {word.lstrip("-").split("=")[0] for word in rest if word.startswith("--")}
            assert flags <= flags_of(first)


def test_what_is_named_is_there():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(re.findall(r"`make ([\w-]+)`", OURS)) <= set(targets)
    folders = "bin|bilm|examples|benchmarks|tests|options"
    for path in re.findall(rf"(?<![\w./])(?:{folders})/[\w./]*", OURS):
        assert (ROOT / path).exists(), path
    for dotted in set(re.findall(r"`bilm\.([\w.]+)", OURS)):
        *modules, name = dotted.split(".")
        assert hasattr(importlib.import_module(".".join(["bilm", *modules])), name), dotted


def test_flags_exist():
    known = set().union(*map(flags_of, COMMANDS))
    for flag in re.findall(r"(?<![\w-])--(\w+)", OURS):
        assert flag in known | {"help"}, flag


def test_code_in_prose_names_options():
    for name in ("tiny", "small", "medium", "original"):
        assert f"`{name}`" in OURS and (ROOT / "options" / f"{name}.json").is_file()
