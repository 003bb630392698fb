"""The report of `bilm doctor`: checks, their values and problems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Problem:
    """Something that prevents bilm from working, or makes it slow or inexact.

    Fields:
        found: what was found and what was expected.
        fix: what the user can do.
    """

    found: str
    fix: str

    def __str__(self) -> str:
        return f"{self.found}. Fix: {self.fix}"


@dataclass
class Check:
    """One section of the report.

    Fields:
        title: heading of the section.
        values: name and value of each line; values are strings, numbers or None.
        problems: the problems that the check found.
    """

    title: str
    values: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, found: str, fix: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(found, fix))


@dataclass
class Report:
    """The checks of one run of `bilm doctor`, in order."""

    checks: list[Check] = field(default_factory=list)

    @property
    def problems(self) -> list[Problem]:
        """The problems of all checks."""
        return [problem for check in self.checks for problem in check.problems]

    def as_dict(self) -> dict[str, Any]:
        """Return the report with the keys of `bilm doctor --json`."""
        return {
            "checks": {check.title: check.values for check in self.checks},
            "problems": [{"found": p.found, "fix": p.fix} for p in self.problems],
        }

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report as text."""
        for check in self.checks:
            yield check.title
            width = max((len(name) for name in check.values), default=0)
            for name, value in check.values.items():
                yield f"  {name:<{width}}  {'-' if value is None else value}"
        if not self.problems:
            yield "no problems found"
            return
        yield "problems"
        for number, problem in enumerate(self.problems, 1):
            yield f"  {number}. {problem.found}"
            yield f"     Fix: {problem.fix}"
