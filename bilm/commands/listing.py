"""The subcommands of `bilm` by subject: those of this package, and entry points of the group
`bilm.commands`. Descriptions are read from the source: imports take long, and may fail."""

import ast
import functools
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import click
import cloup

from bilm.support.entry_points import PluginError, described, entry_points_of, is_own, loaded

GROUP = "bilm.commands"
STUDY, OTHER = "Study", "Other packages"
# Modules of this package, which define a command of the same name, in the order of the help.
SUBJECTS = {
    "Train": ("text", "vocab", "train", "finetune", "test"),
    "Use": ("export", "embed", "score", "substitutes"),
    STUDY: (),  # entry points of this package
    "Inspect": ("info", "models", "doctor"),
}
COMMANDS = tuple(name for names in SUBJECTS.values() for name in names)


class Listing(NamedTuple):
    """The described commands by subject, and a line for each unusable entry point."""

    sections: list[cloup.Section]
    problems: list[str]


def listed_commands() -> Listing:
    """Find the commands of this package and of the entry points."""
    listed = {
        subject: [_described_command(name, f"bilm.commands.{name}", name) for name in names]
        for subject, names in SUBJECTS.items()
    }
    listed[OTHER] = []
    names = set(COMMANDS)
    problems = []
    try:
        entries = entry_points_of(GROUP)
    except PluginError as error:
        entries = []
        problems.append(str(error))
    for entry in entries:
        if entry.name in names:
            problems.append(described(entry, "another command has this name"))
            continue
        names.add(entry.name)
        try:
            command = _described_command(entry.name, entry.module, entry.attr)
        except (ImportError, OSError, SyntaxError, ValueError) as error:
            problems.append(described(entry, f"{type(error).__name__}: {error}"))
        else:
            listed[STUDY if is_own(entry) else OTHER].append(command)
    sections = [cloup.Section(subject, commands) for subject, commands in listed.items()]
    return Listing(sections, problems)


def _described_command(name: str, module: str, function: str) -> click.Command:
    return click.Command(name, help=docstring(module, function.replace("-", "_")))


@functools.cache
def docstring(module: str, function: str) -> str | None:
    """Return the docstring of a function without importing its module; None if it cannot be read.
    Raises: ImportError if the module does not exist; SyntaxError."""
    name, *parts = module.split(".")
    spec = find_spec(name)
    for part in parts:
        name = f"{name}.{part}"
        folders = spec.submodule_search_locations if spec else None
        spec = PathFinder.find_spec(name, folders or [])
    if spec is None:
        raise ModuleNotFoundError(f"No module named {module!r}")
    if not (spec.origin or "").endswith(".py"):
        return None
    for node in ast.parse(Path(spec.origin or "").read_bytes()).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return ast.get_docstring(node)
    return None


def plugin(name: str) -> click.Command | None:
    """Import the command of an entry point; None if no package has it. Raises: PluginError."""
    entry = next((entry for entry in entry_points_of(GROUP) if entry.name == name), None)
    if entry is None:
        return None
    command = loaded(entry)
    if not isinstance(command, click.Command):
        raise PluginError(described(entry, f"found {command!r}, expected a command of click"))
    return command
