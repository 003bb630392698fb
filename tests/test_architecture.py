"""Import order, import cycles, modules without TensorFlow, and no unsafe deserialization."""

import re
from graphlib import TopologicalSorter

import pytest
from rooms import FILES, ROOT, STEP, imported, place

PLAIN_PYTHON = {"errors", "activations", "precisions", "support", "options", "tensors", "data"}
# Entry points of inference, which runs on every backend of Keras: they and the modules that they
# import at the top of a file must not import TensorFlow there.
ANY_BACKEND = [
    "bilm.language_model",
    "bilm.compat.bilm_tf",
    "bilm.elmo.layer",
    "bilm.embedding.embedder",
]
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
