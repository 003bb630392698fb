"""Results on standard output: text for people, JSON for programs."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from bilm.commands.flags import Flags


def define_json(flags: Flags, what: str = "Print one JSON object.") -> None:
    """Declare --json."""
    flags.group("results")
    flags.switch("json", what)


def show(args: Namespace, found: Mapping[str, Any], text: str) -> None:
    """Print a result: as one line of JSON if --json is given, otherwise as text."""
    print(as_json(found) if args.json else text)


def as_json(found: Any) -> str:
    """Return one line of JSON, with null for numbers that JSON lacks: nan and infinities."""
    return json.dumps(_finite(found), ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
