"""Reading and writing `options.json`, and the options of the sizes shipped with bilm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from absl import logging

from bilm.errors import OptionsError
from bilm.options import schema
from bilm.options.model_options import EXPORT_ID, ModelOptions
from bilm.options.run_options import RunOptions


def load_run_options(name_or_path: str | Path) -> RunOptions:
    """Read the options of a new run from a path, or by a shipped name such as `tiny`.

    Raises: OptionsError, naming the file and the key that is missing, unknown or invalid.
    """
    name, packaged = str(name_or_path), packaged_options()
    is_path = Path(name).name != name or name.endswith(".json") or Path(name).exists()
    if name not in packaged and not is_path:
        known = ", ".join(packaged)
        raise OptionsError(f"{name}: unknown options, expected a path or one of {known}")
    return schema.load(RunOptions, packaged.get(name, name), strict=True)


def load_model_options(path: str | Path) -> ModelOptions:
    """Read the options of a stored model; log one warning that names the unused keys.

    Raises: OptionsError, naming the file and the key, if a key of the model is invalid.
    """
    options = schema.load(ModelOptions, path, strict=False)
    known = {EXPORT_ID, *(field.name for field in schema.keys(RunOptions))}
    unknown = [name for name in options.other_names() if name not in known]
    if unknown:
        logging.warning("%s: these keys are kept but not used: %s", path, ", ".join(unknown))
    return options


def write_options(path: str | Path, values: Mapping[str, Any]) -> None:
    """Write an `options.json` atomically."""
    schema.write(path, values)


def packaged_options() -> dict[str, Path]:
    """Return the shipped options files by name, from the package or its checkout."""
    here = Path(__file__).resolve().parents[1]
    folder = here / "_options"
    folder = folder if folder.is_dir() else here.parent / "options"
    return {path.stem: path for path in sorted(folder.glob("*.json"))}
