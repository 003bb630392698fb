"""The ladder: a module imports from lower steps and its own room, and nothing in a circle."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LADDER = [  # from the bottom to the top; a name is a module at the top or a package
    ["errors", "files", "exports"],
    ["schema"],
    ["rules"],
    ["lexicon_options"],
    ["options"],
    ["data"],
    ["layers"],
    ["language_model"],
    ["storage"],
    ["memory", "evaluation", "scores", "scoring", "ask"],
    ["model", "row_states", "elmo", "weighting", "embedding"],
    ["saved_model", "simple_elmo", "training"],
    ["process"],
    ["commands"],
    ["__init__"],
]
STEP = {name: k for k, names in enumerate(LADDER) for name in names}
PLAIN_PYTHON = {"errors", "files", "exports", "schema", "options", "data"} | {
    "rules",
    "lexicon_options",
}
# They run on every backend of Keras and import TensorFlow only where it is used.
NEUTRAL = {"layers", "language_model", "storage", "model", "elmo", "weighting", "embedding"}
FAST_TWINS = "bilm.layers.tensorflow"
READS_CHECKPOINTS = {"bilm.storage.checkpoint", "bilm.storage.checkpoint_folder"}
MAX_LINES = 300
FILES = sorted(ROOT.glob("bilm/**/*.py"))


def dotted(path: Path) -> str:
    """The name under which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


NAMES = {dotted(path): path for path in FILES}
MODULES = [pytest.param(path, id=str(path.relative_to(ROOT))) for path in FILES]


def place(name: str) -> str:
    """The entry of LADDER that a dotted name belongs to."""
    return name.split(".")[1]


def nodes(node: ast.AST, functions: bool) -> Iterator[ast.AST]:
    """All nodes below, those inside of functions only on request."""
    for child in ast.iter_child_nodes(node):
        if functions or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from nodes(child, functions)


def imported(path: Path, functions: bool = True) -> set[str]:
    """The dotted names that a file imports."""
    names = set()
    for node in nodes(ast.parse(path.read_text(encoding="utf-8")), functions):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def modules_of_bilm(names: set[str]) -> set[str]:
    """The modules of bilm among imported names, each without what is taken out of it."""
    found = set()
    for name in names:
        if name.startswith("bilm."):
            parts = name.split(".")
            candidates = (".".join(parts[:n]) for n in range(len(parts), 1, -1))
            found.add(next((c for c in candidates if c in NAMES), name))
    return found


def packages(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", MODULES)
def test_a_module_imports_from_lower_steps_only(path):
    own = place(dotted(path))
    assert own in STEP, f"{own} has no place on the ladder"
    for name in modules_of_bilm(imported(path)):
        assert STEP[place(name)] <= STEP[own], f"{own} imports {name}"


def test_no_module_imports_itself_through_others():
    graph = {name: modules_of_bilm(imported(path)) for name, path in NAMES.items()}
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


def test_layers_take_plain_arguments():
    for name, path in NAMES.items():
        if place(name) == "layers":
            assert "bilm.options" not in modules_of_bilm(imported(path)), name


@pytest.mark.parametrize("path", MODULES)
def test_tensorflow_is_imported_where_it_belongs(path):
    own = dotted(path)
    if place(own) in PLAIN_PYTHON:
        assert not packages(imported(path)) & {"tensorflow", "keras"}
    elif place(own) in NEUTRAL and not own.startswith(FAST_TWINS) and own not in READS_CHECKPOINTS:
        # A fast twin lives in a file of its own, which is imported where it is called.
        names = imported(path, functions=False)
        assert "tensorflow" not in packages(names)
        for name in modules_of_bilm(names):
            assert place(name) in {*PLAIN_PYTHON, *NEUTRAL}, name
            assert not name.startswith(FAST_TWINS) and name not in READS_CHECKPOINTS, name


@pytest.mark.parametrize("path", MODULES)
def test_the_library_does_not_print(path):
    if place(dotted(path)) != "commands":
        calls = [n for n in nodes(ast.parse(path.read_text()), True) if isinstance(n, ast.Call)]
        assert not [call for call in calls if getattr(call.func, "id", None) == "print"]


@pytest.mark.parametrize("path", MODULES)
def test_a_module_is_read_in_one_sitting(path):
    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_each_package_says_what_is_in_it():
    for package in ROOT.glob("bilm/**/__init__.py"):
        text = ast.get_docstring(ast.parse(package.read_text()))
        assert text and (package.parent.name == "bilm" or len(text.splitlines()) >= 3), package
