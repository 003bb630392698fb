"""Check README.md and docs/: Python blocks run, and all named commands, flags and files exist."""

import importlib
import re
import shlex
import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pages
import pytest
from command_runs import help_texts, succeeded
from elmo_models import CASE
from tiny_runs import WORDS, tiny_options

import bilm
from bilm.commands.main import cli
from bilm.errors import BilmError
from bilm.options import schema

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
README, MIGRATION = ROOT / "README.md", ROOT / "docs" / "migration.md"
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))  # `make docs` runs them
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), *TUTORIALS]
OTHER_PAGES = "embedding", "faq", "python", "tokenization", "training"
RUNNABLE = [README, MIGRATION, *(ROOT / "docs" / f"{name}.md" for name in OTHER_PAGES)]
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
MODELS = {  # of other programs, which the migration page names
    "elmo_3.tar.gz": GOLDEN / "tfhub" / "google_highway1_binding_clips" / "module.tar.gz",
    "144": GOLDEN / "manylangs" / "word_and_char_legacy",
}
SCRIPTS = ("train_elmo.py", "run_test.py", "dump_weights.py")
# Flags of every command, and of pip, docker, sbatch, tensorflow_model_server, allennlp and wsl.
OTHERS = (
    *("help", "quiet", "version", "requeue", "signal", "model_name", "model_base_path"),
    *("all", "top", "average", "install", "wheel", "no", "find", "init", "cpuset"),
)
TARGETS = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


def prose(page):
    """Return a page without blocks and without other projects' names in the migration tables."""
    text = re.sub(r"^```.*?^```", "", TEXTS[page], flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^\|[^|]*\|", "|", text, flags=re.M) if page == MIGRATION else text


def shell_commands():
    """Yield the words of each `bilm`, `make` and `python` command, without comments."""
    for page in PAGES:
        cells = pages.blocks(r"\{code-cell\} python3", TEXTS[page])
        cells = ((0, cell[5:]) for _, cell in cells if cell[:4] == "%%sh")
        for _, block in [*pages.blocks("sh", TEXTS[page]), *cells]:
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith(("bilm ", "make ", "python ")):
                    yield shlex.split(line.split(" | ")[0], comments=True)


@cache
def flags_of(program):
    """Return the flags in the help of a command or script in bin/, or in a script's source."""
    if program.startswith(("benchmarks/", "examples/")):
        return set(re.findall(r"""["'](?:--)?(\w+)["'],""", (ROOT / program).read_text()))
    text = help_texts()[program.removeprefix("bin/")]
    text = re.sub(r"--\[no_\](\w+)", r"--\1 --no_\1", text)
    return {flag.replace("-", "_") for flag in re.findall(r"--([a-z][\w-]*)", text)}


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.stem)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    for folder in (tmp_path, tmp_path / "elmo"):
        folder.mkdir(exist_ok=True)
        for name in ("options.json", "weights.hdf5", "vocab.txt"):
            shutil.copy(CASE / name, folder)
    for name, case in MODELS.items():
        copy = shutil.copytree if case.is_dir() else shutil.copy
        copy(case, tmp_path / name)
    training = sorted((GOLDEN / "data" / "train").iterdir())
    (tmp_path / "text.txt").write_bytes(b"".join(shard.read_bytes() for shard in training))
    schema.write(tmp_path / "small.json", tiny_options(**WORDS).to_dict())
    monkeypatch.chdir(tmp_path)
    text = TEXTS[page].replace('options="tiny"', 'options="small.json"')  # compiles sooner
    if find_spec("sklearn") is None:
        text = re.sub(r"```python\n[^`]*ElmoVectorizer", "```text\n", text)
    names = pages.run_blocks(text, page)
    if "first" in names:
        assert (names["first"]["lm_embeddings"] != names["second"]["lm_embeddings"]).any()
    if "tagger" in names:
        assert names["tagger"].output_shape == (None, None, 17)
    if page == README:
        assert names["vectors"].shape == (3, 5, 256)
    if "result" in names:
        assert names["result"].finished and names["result"].heldout.mean > 1


@pytest.mark.clients
def test_python_blocks_of_the_clients_page_run(tmp_path, monkeypatch):
    if any(find_spec(name) is None for name in ("sklearn", "spacy", "onnxruntime", "tf2onnx")):
        pytest.skip("needs the extras sklearn, spacy and onnx: make test-clients")
    from bilm.export.onnx import export_onnx

    export_onnx(bilm.Elmo("novels-en"), tmp_path / "elmo.onnx")
    monkeypatch.chdir(tmp_path)
    names = pages.run_blocks(TEXTS[page := ROOT / "docs" / "clients.md"], page)
    assert names["mean"].shape == (2, names["doc"].tensor.shape[1])


@pytest.mark.clients
def test_script_of_a_psycholinguist_joins_reading_times(tmp_path, monkeypatch, run_here):
    pytest.importorskip("pandas", reason="make test-clients")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_text("She rose from her chair .\nHe sat .\n")
    (tmp_path / "times.csv").write_text("sentence,position,ms\n0,1,300\n0,2,250\n0,4,400\n1,1,2\n")
    files = "--input", "story.txt", "--output", "story.csv"
    succeeded(run_here("bilm surprisal", "--model", "novels-en", *files))
    names = pages.run_blocks(TEXTS[page := ROOT / "docs" / "surprisal.md"], page)
    assert len(names["joined"]) == 4
    assert names["words"]["region_name"].tolist()[5::6] == ["chair .", "door ."]


def test_shell_blocks_name_existing_commands_and_flags():
    found = list(shell_commands())
    assert found
    for program, first, *rest in found:
        if program == "make":
            assert first in TARGETS
            continue
        assert program == "bilm" or (ROOT / first).is_file(), first
        if program == "python" and not rest:
            continue
        flags = {word.lstrip("-").split("=")[0] for word in rest if word.startswith("--")}
        assert flags <= flags_of(first if program == "python" else f"bilm {first}"), first


def test_named_make_targets_files_and_modules_exist():
    text = "".join(map(prose, PAGES))
    assert set(re.findall(r"`make ([\w-]+)", text)) <= set(TARGETS)
    folders = "bin|bilm|examples|benchmarks|tests|options"
    for path in re.findall(rf"(?<![\w./])(?:{folders})/[\w./]*\w(?!\S*_\*)", text):
        # architecture.md names files relative to bilm/.
        assert (ROOT / path).exists() or (ROOT / "bilm" / path).exists(), path
    for dotted in set(re.findall(r"`bilm\.([\w.]+)", text)):
        *modules, name = dotted.split(".")
        home = ".".join(["bilm", *modules])
        path = ROOT / home.replace(".", "/") / name
        if not path.with_suffix(".py").exists() and not path.is_dir():
            try:
                assert name in dir(importlib.import_module(home)), dotted
            except ImportError:  # an optional package is missing
                assert home.startswith("bilm.integrations"), dotted
            except BilmError:  # requires another backend of Keras
                source = (ROOT / home.replace(".", "/")).with_suffix(".py").read_text("utf-8")
                assert re.search(rf"\b{name}\b", source), dotted


def test_named_flags_exist():
    known = set(OTHERS).union(*(flags_of(f"bilm {name}") for name in cli.list_commands(None)))
    known |= set().union(*(flags_of(f"bin/{name}") for name in SCRIPTS))
    for path in [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "examples").glob("*.py")]:
        known |= flags_of(str(path.relative_to(ROOT)))
    for page in PAGES:
        for flag in re.findall(r"(?<=[`( ])--([a-z]\w+)", prose(page)):
            assert flag in known or page.stem == "experiments", (page.name, flag)


def test_documentation_links_point_to_existing_files():
    for page, text in TEXTS.items():
        for target in re.findall(r"\]\(([^)#]*)[^)]*\)", text):
            if not target.startswith("http"):
                assert not target or (page.parent / target).exists(), f"{page.name}: {target}"


def test_migration_table_names_reference_flags_of_scripts():
    row = r"^\| `bin/(\w+\.py)` \| `(bilm \w+)[^`]*` \| (.*) \|$"
    rows = re.findall(row, TEXTS[MIGRATION], re.M)
    assert {script for script, _, _ in rows} == set(SCRIPTS)
    for script, command, cell in rows:
        pairs = dict(re.findall(r"`--(\w+)` → `--(\w+)`", cell))
        assert pairs.keys() <= flags_of(f"bin/{script}")
        assert set(pairs.values()) <= flags_of(command)
