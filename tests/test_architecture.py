"""Import order, import cycles, modules without TensorFlow, and no unsafe deserialization."""

import ast
import importlib
import re
from graphlib import TopologicalSorter

import pytest
from rooms import FILES, ROOT, STEP, imported, place

PLAIN_PYTHON = {"errors", "activations", "precisions", "support", "options", "tensors", "data"}
# Entry points of inference, which runs on every backend of Keras: they and the modules that they
# import at the top of a file must not import TensorFlow there.
ANY_BACKEND = ["language_model", "compat.bilm_tf", "elmo.layer", "embedding.embedder"]
# Packages that offer bilm-tf's names where its scripts import them, on first use, from above.
OF_BILM_TF = {
    "bilm.elmo": {"bilm.compat.bilm_tf"},
    "bilm.training": {"bilm.compat.bilm_tf_training"},
}


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
    upward: dict[str, set[str]] = {}
    for name in FILES:
        own = place(name)
        assert own in STEP, f"{own} has no place in ORDER"
        for other in imported(name):
            if other.startswith("bilm.") and STEP[place(other)] > STEP[own]:
                upward.setdefault(name, set()).add(other)
    assert upward == OF_BILM_TF


def test_core_does_not_import_studies():
    for name in FILES:
        if place(name) != "studies":
            assert not {other for other in imported(name) if place(f"{other}.") == "studies"}, name


def imported_names(name: str) -> set[tuple[str, str]]:
    """Return the names of bilm that a module imports, with the modules that they come from."""
    names = set()
    for node in ast.walk(ast.parse(FILES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level and node.module, f"{name}: relative import"
            names |= {(node.module, alias.name) for alias in node.names}
    return {(module, public) for module, public in names if packages({module}) == {"bilm"}}


def test_studies_import_only_public_names():
    """A study imports what `bilm`, `bilm.errors`, packages of the core and other studies list in
    `__all__`, and all of its own modules."""
    checked = set()
    for name in FILES:
        study = ".".join(name.split(".")[:3])
        if place(name) != "studies" or study == name == "bilm.studies":
            continue
        for module, public in imported_names(name):
            if f"{module}.".startswith(f"{study}.") or module == "bilm.errors":
                continue
            n_parts = 3 if module.startswith("bilm.studies") else 2
            is_package = FILES.get(module, ROOT).name == "__init__.py"
            assert is_package and module.count(".") < n_parts, f"{name} imports {module}"
            package = importlib.import_module(module)
            assert public in package.__all__, f"{name}: {public} of {module} is not public"
            assert f"{module}.{public}" in FILES or hasattr(package, public), (module, public)
            checked.add((module, public))
    assert len(checked) > 30


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
    modules = [m for m in imported_at_start(f"bilm.{name}") if m in FILES]
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
