"""The ladder: a module imports from lower steps and its own room, and nothing in a circle."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LADDER = [  # from the bottom to the top; a name is a module at the top or a package
    ["errors", "files", "exports", "extras", "progress"],
    ["folders"],
    ["schema"],
    ["rules"],
    ["lexicon_options"],
    ["options"],
    ["sizes"],
    ["data"],
    ["layers"],
    ["language_model"],
    ["storage"],
    ["memory", "evaluation", "scores", "scoring", "ask"],
    ["model", "row_states", "elmo", "weighting", "embedding", "description"],
    [
        "warm_up",
        "saved_model",
        "onnx_model",
        "projector",
        "simple_elmo",
        "integrations",
        "training",
    ],
    ["process", "installation"],
    ["commands"],
    ["__init__", "__main__"],
]
STEP = {name: k for k, names in enumerate(LADDER) for name in names}
PLAIN_PYTHON = {
    *("errors", "files", "exports", "extras", "progress", "folders", "schema", "rules"),
    *("lexicon_options", "options", "sizes", "data"),
}
# They run on every backend of Keras and import TensorFlow only where it is used.
NEUTRAL = {"layers", "language_model", "storage", "model", "elmo", "weighting", "embedding"}
FAST_TWINS = "bilm.layers.tensorflow"
READS_CHECKPOINTS = {"bilm.storage.checkpoint", "bilm.storage.checkpoint_folder"}
LAYERS = [  # the same inside layers/, by file
    ["weighted", "functional", "state"],
    ["tensorflow/products"],
    ["tensorflow/char_cnn", "tensorflow/sampled_softmax", "tensorflow/spelling"],
    ["tensorflow/lstm_loop"],
    ["tensorflow/lstm_weights"],
    ["tensorflow/lstm_inference"],
    ["tensorflow/lstm_training"],
    ["tensorflow/lstm"],
    ["char_cnn", "highway", "lstm", "sampled_softmax", "scalar_mix"],
    ["stack", "token_encoder"],
    ["__init__", "tensorflow/__init__"],
]
MAX_LINES, MAX_FUNCTION, MAX_PARAMETERS = 300, 50, 8
LONG = {"bilm.training.finetuning.finetune"}
# What users call with keywords.
WIDE = {
    "bilm.elmo.Elmo.__init__",
    "bilm.embedding.corpus.dump_bilm_embeddings",
    "bilm.layers.token_encoder.TokenEncoder.__init__",
    "bilm.training.run.TrainingRun.__init__",
}
SEAMS = ("bilm.commands.", "bilm.storage.formats.")  # each module in them has the same functions
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


def test_layers_stand_on_lower_layers():
    step = {name: k for k, names in enumerate(LAYERS) for name in names}
    folder = ROOT / "bilm/layers"
    for path in folder.rglob("*.py"):
        own = str(path.relative_to(folder).with_suffix(""))
        assert own in step, f"layers/{own} has no place on the ladder of layers"
        for name in modules_of_bilm(imported(path)):
            if place(name) == "layers":
                other = "/".join(name.split(".")[2:])
                assert step[other] < step[own], f"layers/{own} imports {name}"


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


def functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a file, those of classes too, by dotted name."""
    scopes = [(dotted(path), ast.parse(path.read_text(encoding="utf-8")))]
    while scopes:
        name, scope = scopes.pop()
        for node in ast.iter_child_nodes(scope):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                scopes.append((f"{name}.{node.name}", node))
            if isinstance(node, ast.FunctionDef):
                yield f"{name}.{node.name}", node


def n_parameters(function: ast.FunctionDef) -> int:
    of = function.args
    named = [arg.arg for arg in [*of.posonlyargs, *of.args, *of.kwonlyargs]]
    return len([name for name in named if name not in ("self", "cls")])


def test_a_function_fits_a_screen():
    found = {
        name
        for path in FILES
        for name, node in functions(path)
        if node.end_lineno - node.lineno >= MAX_FUNCTION
    }
    assert found == LONG


def test_a_signature_is_short():
    found = {
        name
        for path in FILES
        for name, node in functions(path)
        if n_parameters(node) > MAX_PARAMETERS
    }
    assert found == WIDE


def test_a_name_means_one_thing():
    """No two modules have a public function or class of one name, fast twins and seams aside."""
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            is_named = isinstance(node, ast.FunctionDef | ast.ClassDef)
            if is_named and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(dotted(path))
    twice = {
        name: found
        for name, found in homes.items()
        if len({place for place in found if not place.startswith((FAST_TWINS, *SEAMS))}) > 1
    }
    assert not twice


def test_a_module_has_a_name_of_its_own():
    stems = [
        path.stem
        for path in FILES
        if path.stem != "__init__" and not dotted(path).startswith((FAST_TWINS, *SEAMS))
    ]
    assert sorted(stems) == sorted(set(stems))
