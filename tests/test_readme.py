"""What README.md and the pages of docs/ show works: Python runs, and what is named exists."""

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

from bilm.commands.main import COMMANDS as NAMES

if keras.backend.backend() != "tensorflow":
    pytest.skip("the README is about TensorFlow", allow_module_level=True)

ROOT = Path(__file__).parent.parent
MIGRATION = ROOT / "docs" / "migration.md"
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / f"{n}.md" for n in ("embedding", "training", "speed", "proteins")),
]
PAGES.append(MIGRATION)
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
PROSE = {p: re.sub(r"```.*?```", "", text, flags=re.DOTALL) for p, text in TEXTS.items()}
# The first column of its tables has other projects' names.
PROSE[MIGRATION] = re.sub(r"^\|[^|]*\|", "|", PROSE[MIGRATION], flags=re.MULTILINE)
OURS = "".join(PROSE.values())
SCRIPTS = sorted(f"bin/{p.name}" for p in (ROOT / "bin").glob("*.py"))
COMMANDS = [*(f"bilm {name}" for name in NAMES), *SCRIPTS, "benchmarks/train.py"]


def blocks(language, page):
    """Return the line and the content of each block."""
    text = TEXTS[page]
    for found in re.finditer(rf"```{language}\n(.*?)```", text, flags=re.DOTALL):
        yield text.count("\n", 0, found.start(1)), found[1]


def shell_commands():
    """Return the words of each command, without what `#` starts."""
    for page in PAGES:
        for _, block in blocks("sh", page):
            for line in block.replace("\\\n", " ").splitlines():
                if words := shlex.split(line, comments=True):
                    yield words


@cache
def flags_of(script):
    start = ["-m", *script.split()] if script.startswith("bilm ") else [script]
    command = [sys.executable, *start, "--help"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    shown = re.findall(r"^  --(?:\[no_?\])?(\w+)[: ].*", text, flags=re.MULTILINE)
    return {*shown, *re.findall(r" or --(\w+) ", text)}


def example_model():
    """Return a stored model of the kind that the pages use: 50 characters, two directions."""
    for case in golden_cases("inference"):
        options = json.loads((case.values[0] / "options.json").read_text())
        if options["char_cnn"]["max_characters_per_token"] == 50 and options["bidirectional"]:
            return case.values[0]
    raise AssertionError("no such case")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_runs(page, tmp_path, monkeypatch):
    for folder in (tmp_path, tmp_path / "elmo", tmp_path / "demo_run" / "model"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("options.json", "weights.hdf5", "vocab.txt"):
            shutil.copy(example_model() / name, folder)
    monkeypatch.chdir(tmp_path)
    names = {}
    for line, block in blocks("python", page):
        code = compile("\n" * line + block, str(page), "exec")
        exec(code, names)  # one after the other, as a reader goes through them
    if "first" in names:
        assert (names["first"]["lm_embeddings"] != names["second"]["lm_embeddings"]).any()
    if "tagger" in names:
        assert names["tagger"].output_shape == (None, None, 17)


def test_shell_commands_exist():
    commands = list(shell_commands())
    assert commands
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for program, first, *rest in commands:
        if program == "make":
            assert first in targets
        elif program == ".":
            assert first == ".venv/bin/activate"
        else:
            assert program == "bilm" or (program == "python" and (ROOT / first).is_file())
            flags = {word.lstrip("-").split("=")[0] for word in rest if word.startswith("--")}
            assert flags <= flags_of(first if program == "python" else f"bilm {first}")


def test_what_is_named_is_there():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(re.findall(r"`make ([\w-]+)`", OURS)) <= set(targets)
    folders = "bin|bilm|examples|benchmarks|tests|options"
    for path in re.findall(rf"(?<![\w./])(?:{folders})/[\w./]*", OURS):
        assert (ROOT / path).exists(), path
    for dotted in set(re.findall(r"`bilm\.([\w.]+)", OURS)):
        *modules, name = dotted.split(".")
        home = ".".join(["bilm", *modules])
        is_module = (ROOT / home.replace(".", "/") / name).with_suffix(".py").exists()
        is_package = (ROOT / home.replace(".", "/") / name).is_dir()
        there = is_module or is_package or name in dir(importlib.import_module(home))
        assert there, dotted


def test_flags_exist():
    known = set().union(*map(flags_of, COMMANDS))
    for flag in re.findall(r"(?<![\w-])--(\w+)", OURS):
        assert flag in known | {"help", "quiet", "version"}, flag


def test_links_lead_somewhere():
    for page, text in TEXTS.items():
        for target in re.findall(r"\]\(([^)#]*)[^)]*\)", text):
            assert not target or (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_readme_is_short():
    assert TEXTS[ROOT / "README.md"].count("\n") < 200


def test_code_in_prose_names_options():
    for name in ("tiny", "small", "medium", "original", "original_2018"):
        assert f"`{name}`" in OURS and (ROOT / "options" / f"{name}.json").is_file()


def test_each_flag_that_has_another_name_in_bin_is_in_the_table():
    rows = re.findall(r"^\| `bin/(\w+\.py)` \| `(bilm \w+)` \| (.*) \|$", TEXTS[MIGRATION], re.M)
    assert [f"bin/{script}" for script, _, _ in sorted(rows)] == SCRIPTS
    for script, command, cell in rows:
        pairs = dict(re.findall(r"`--(\w+)` → `--(\w+)`", cell))
        assert set(pairs) == flags_of(f"bin/{script}") - flags_of(command)
        assert set(pairs.values()) == flags_of(command) - flags_of(f"bin/{script}")
