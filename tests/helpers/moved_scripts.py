"""Scripts of other programs, run after the change of one line that docs/migration.md describes."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def run_moved(monkeypatch, script, before, after, *arguments):
    """Run a script of tests/reference_scripts with one line replaced; return its variables."""
    page = (TESTS.parent / "docs" / "migration.md").read_text(encoding="utf-8").splitlines()
    assert {before, after} <= set(page)
    lines = (TESTS / "reference_scripts" / script).read_text(encoding="utf-8").splitlines()
    lines[lines.index(before)] = after
    monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
    names = {"__name__": "__main__"}
    exec(compile("\n".join(lines), script, "exec"), names)
    return names
