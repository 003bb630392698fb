"""The order of the modules: each one imports only from those above it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = [
    "errors",
    "files",
    "schema",
    "options",
    "text",
    "tokenization",
    "vocabulary",
    "vocabulary_builder",
    "batcher",
    "survey",
    "web",
    "stream",
    "dataset",
    "layers",
    "language_model",
    "hdf5",
    "embedding_file",
    "export_id",
    "weights",
    "stored_weights",
    "download",
    "source",
    "pretrained",
    "strings",
    "row_states",
    "elmo",
    "token_cache",
    "packing",
    "ahead",
    "packed_runner",
    "embedding",
    "parts",
    "corpus",
    "saved_model",
    "sampling",
    "pipeline",
    "optimizer",
    "devices",
    "evaluation",
    "trainer",
    "report",
    "checkpoint_folder",
    "checkpoint",
    "saved",
    "run_state",
    "folder",
    "plan",
    "signals",
    "training_text",
    "scoring",
    "weighting",
    "simple_elmo",
    "training",
    "flag_kinds",
    "run_flags",
    "starting_point",
    "finetuning",
    "export",
    "process",
    "terminal",
    "command",
    "commands",
    "__init__",
]
PLAIN_PYTHON = ORDER[: ORDER.index("layers")]
NEUTRAL = [  # they run on every backend of Keras and import TensorFlow only where it is used
    "layers",
    "language_model",
    "hdf5",
    "embedding_file",
    "export_id",
    "weights",
    "stored_weights",
    "download",
    "source",
    "pretrained",
    "elmo",
    "token_cache",
    "packing",
    "ahead",
    "packed_runner",
    "embedding",
]
MODULES = [
    pytest.param(path, id=str(path.relative_to(ROOT))) for path in sorted(ROOT.glob("bilm/**/*.py"))
]


def place(path: Path) -> str:
    """The entry of ORDER that a file belongs to."""
    return path.relative_to(ROOT / "bilm").with_suffix("").parts[0]


def nodes(node: ast.AST, functions: bool) -> Iterator[ast.AST]:
    """All nodes below, those inside of functions only if asked."""
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


def packages(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def bilm_modules(names: set[str]) -> set[str]:
    """The entries of ORDER that are named, by `from bilm import x` too."""
    return {name.split(".")[1] for name in names if name.startswith("bilm.")}


@pytest.mark.parametrize("path", MODULES)
def test_a_module_imports_only_from_those_above(path):
    own = place(path)
    assert own in ORDER, f"{own} has no place in the order of the modules"
    names = bilm_modules(imported(path))
    above = ORDER[: ORDER.index(own)]
    inside = [own] if path.parent.name != "bilm" else []
    assert names <= {*above, *inside}, f"{own} imports from below"


def test_layers_take_plain_arguments():
    for path in (ROOT / "bilm/layers").glob("*.py"):
        assert not {name for name in imported(path) if name.startswith("bilm.options")}, path.name


@pytest.mark.parametrize("path", MODULES)
def test_tensorflow_is_imported_where_it_belongs(path):
    if place(path) in PLAIN_PYTHON:
        assert not packages(imported(path)) & {"tensorflow", "keras"}
    elif place(path) in NEUTRAL and not path.stem.endswith("_tensorflow"):
        # A fast twin lives in a file of its own, which is imported where it is called.
        names = imported(path, functions=False)
        assert "tensorflow" not in packages(names)
        assert bilm_modules(names) <= {*PLAIN_PYTHON, *NEUTRAL}
        assert not [name for name in names if "_tensorflow" in name]


@pytest.mark.parametrize("path", MODULES)
def test_the_library_does_not_print(path):
    if place(path) not in ("terminal", "command", "commands"):
        calls = [n for n in nodes(ast.parse(path.read_text()), True) if isinstance(n, ast.Call)]
        assert not [call for call in calls if getattr(call.func, "id", None) == "print"]
