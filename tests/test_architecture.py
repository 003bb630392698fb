"""Import order, import cycles, modules without TensorFlow, and no unsafe deserialization."""

import ast
import functools
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ORDER = [  # from the bottom to the top; an entry is a module or a package directly below bilm/
    ["errors", "activations"],
    ["support"],
    ["options"],
    ["data"],
    ["layers"],
    ["language_model"],
    ["storage"],
    ["scoring", "embedding", "elmo"],
    ["export", "training", "analysis", "cluster", "integrations"],
    ["compat", "model", "simple_elmo", "allennlp"],
    ["doctor"],
    ["commands"],
    ["__init__", "__main__"],
]
STEP = {name: k for k, names in enumerate(ORDER) for name in names}
PLAIN_PYTHON = {"errors", "activations", "support", "options", "data"}
# Entry points of inference, which runs on every backend of Keras: they and the modules that they
# import at the top of a file must not import TensorFlow there.
ANY_BACKEND = [
    "bilm.language_model",
    "bilm.compat.bilm_tf",
    "bilm.elmo.layer",
    "bilm.embedding.embedder",
    "bilm.embedding.token_cache",
]


def dotted(path: Path) -> str:
    """Return the name under which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


FILES = {dotted(path): path for path in sorted(ROOT.glob("bilm/**/*.py"))}


def place(name: str) -> str:
    """Return the entry of ORDER that a dotted name belongs to."""
    return name.split(".")[1]


def nodes(node: ast.AST, functions: bool) -> Iterator[ast.AST]:
    """Yield all nodes below a node; those inside functions only if `functions`."""
    for child in ast.iter_child_nodes(node):
        if functions or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from nodes(child, functions)


@functools.cache
def imported(name: str, functions: bool = True) -> set[str]:
    """Return the dotted names that a module imports, those of bilm shortened to modules."""
    names: set[str] = set()
    for node in nodes(ast.parse(FILES[name].read_text(encoding="utf-8")), functions):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {module_of(found) for found in names}


def module_of(name: str) -> str:
    parts = name.split(".")
    candidates = (".".join(parts[:n]) for n in range(len(parts), 1, -1))
    return next((c for c in candidates if c in FILES), name)


def imported_at_start(name: str) -> set[str]:
    """Return the names imported by importing a module, also indirectly through bilm."""
    found: set[str] = set()
    new = {name}
    while new:
        found |= new
        new = {n for m in new if m in FILES for n in imported(m, functions=False)} - found
    return found


def packages(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def test_import_order():
    for name in FILES:
        own = place(name)
        assert own in STEP, f"{own} has no place in ORDER"
        for other in imported(name):
            if other.startswith("bilm."):
                assert STEP[place(other)] <= STEP[own], f"{name} imports {other}"


def test_no_import_cycles():
    graph = {name: {other for other in imported(name) if other in FILES} for name in FILES}
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError, which names the modules


def test_layers_do_not_import_options():
    for name in FILES:
        if place(name) == "layers":
            assert not {m for m in imported(name) if m.startswith("bilm.options")}, name


@pytest.mark.parametrize("package", sorted(PLAIN_PYTHON))
def test_data_and_options_do_not_import_tensorflow_or_keras(package):
    for name in FILES:
        if place(name) == package:
            assert not packages(imported_at_start(name)) & {"tensorflow", "keras"}, name


@pytest.mark.parametrize("name", ANY_BACKEND)
def test_inference_does_not_import_tensorflow_at_start(name):
    modules = [m for m in imported_at_start(name) if m in FILES]
    assert [m for m in modules if "tensorflow" in packages(imported(m, functions=False))] == []


def test_no_unsafe_deserialization():
    """No module unpickles or evaluates files, and Keras loads in its safe mode.

    Exempt is the reader of PyTorch's files: its `find_class` returns only stand-ins.
    """
    unsafe = (
        r"\b(import|from) (pickle|dill|shelve|marshal|joblib)\b|allow_pickle|safe_mode|np\.load\("
        r"|enable_unsafe_deserialization|\beval\(|\bexec\(|torch\.load|yaml\.load"
    )
    for folder in ("bilm", "bin", "examples", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            if path == FILES["bilm.storage.formats.pytorch"]:
                continue
            assert not re.search(unsafe, path.read_text(encoding="utf-8")), path
