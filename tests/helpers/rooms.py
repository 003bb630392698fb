"""The import graph of bilm, from its source: the order of its packages, and a picture of them.

`python tests/helpers/rooms.py docs/rooms.png` draws the picture of docs/architecture.md (extra
`plot`). `tests/test_architecture.py` checks the order.
"""

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ORDER = [  # from the bottom to the top; an entry is a module or a package directly below bilm/
    ["errors", "activations", "precisions"],
    ["support"],
    ["options"],
    ["tensors"],
    ["data"],
    ["layers"],
    ["language_model"],
    ["storage"],
    ["inference"],
    ["scoring", "embedding", "elmo"],
    ["export", "training", "cluster", "integrations"],
    ["compat", "model", "simple_elmo", "allennlp"],
    ["doctor"],
    ["commands"],
    ["studies"],
    ["__init__", "__main__", "keras_import"],
]
STEP = {name: k for k, names in enumerate(ORDER) for name in names}


def dotted(path: Path) -> str:
    """Return the name under which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


FILES = {dotted(path): path for path in sorted(ROOT.glob("bilm/**/*.py"))}


def place(name: str) -> str:
    """Return the entry of ORDER that a dotted name belongs to."""
    return name.split(".")[1]


def nodes(node: ast.AST, functions: bool) -> Iterator[ast.AST]:
    """Yield all nodes below a node; those inside functions and of types only if `functions`."""
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        is_for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if functions or not (is_function or is_for_types):
            yield child
            yield from nodes(child, functions)


def named_lazily(node: ast.Assign) -> set[str]:
    """Return the modules in a table `MODULES` for `bilm.support.imports.lazily`."""
    is_table = ast.unparse(node.targets[0]) == "MODULES"
    return {f"bilm.{module}" for module in ast.literal_eval(node.value)} if is_table else set()


@functools.cache
def imported(name: str, functions: bool = True) -> set[str]:
    """Return the dotted names that a module imports, those of bilm shortened to modules. With
    `functions`, also those that it imports later: in functions, and by `lazily`."""
    names: set[str] = set()
    for node in nodes(ast.parse(FILES[name].read_text(encoding="utf-8")), functions):
        if functions and isinstance(node, ast.Assign):  # a package may list its own modules
            names |= {other for other in named_lazily(node) if not other.startswith(f"{name}.")}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {module_of(found) for found in names}


def module_of(name: str) -> str:
    parts = name.split(".")
    candidates = (".".join(parts[:n]) for n in range(len(parts), 1, -1))
    return next((c for c in candidates if c in FILES), name)


def rooms() -> dict[str, set[str]]:
    """Return which packages and modules directly below bilm/ each of them imports, except those
    above it, which have names of bilm-tf that it offers."""
    graph: dict[str, set[str]] = {}
    for name in FILES:
        own = graph.setdefault(place(name), set())
        own |= {place(other) for other in imported(name) if other.startswith("bilm.")}
    return {
        name: {other for other in others - {name} if STEP[other] <= STEP[name]}
        for name, others in graph.items()
    }


def direct(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return an acyclic graph without the arrows that longer paths imply."""

    @functools.cache
    def reachable(name: str) -> frozenset[str]:
        return frozenset().union(graph[name], *(reachable(other) for other in graph[name]))

    return {
        name: {one for one in others if not any(one in reachable(other) for other in others)}
        for name, others in graph.items()
    }


def draw(path: str) -> None:
    """Draw each package with its lines of code, and an arrow to each package that it imports."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = dict.fromkeys(rooms(), 0)
    for name, file in FILES.items():
        lines[place(name)] += file.read_text(encoding="utf-8").count("\n")
    floors = [[name for name in names if lines.get(name, 0) > 20] for names in ORDER[:-1]]
    floors = [names for names in floors if names]
    shown = {name for names in floors for name in names}
    _, axis = pyplot.subplots(figsize=(9, 8), layout="constrained")
    box = {"boxstyle": "round,pad=0.4", "facecolor": "#eaf1f8", "edgecolor": "#2a6fb0"}
    boxes = {}
    for y, names in enumerate(floors):
        for x, name in enumerate(names):
            place_x = 1.6 * (x - (len(names) - 1) / 2)
            text = f"{name}\n{lines[name]:,}"
            boxes[name] = axis.text(place_x, y, text, ha="center", va="center", bbox=box, zorder=2)
    graph = {name: others & shown for name, others in rooms().items() if name in shown}
    for name, others in direct(graph).items():
        for other in others:
            ends = [boxes[end].get_position() for end in (other, name)]
            bend = 0.25 if STEP[name] == STEP[other] else 0.05
            arrow = {
                "arrowstyle": "-|>",
                "color": "#8aa0b8",
                "connectionstyle": f"arc3,rad={bend}",
                "patchA": boxes[name].get_bbox_patch(),
                "patchB": boxes[other].get_bbox_patch(),
            }
            axis.annotate("", *ends, arrowprops=arrow, zorder=1)
    axis.set(xlim=(-4.2, 4.2), ylim=(-0.6, len(floors) - 0.4))
    axis.axis("off")
    pyplot.savefig(path, dpi=110)


if __name__ == "__main__":
    draw(sys.argv[1])
