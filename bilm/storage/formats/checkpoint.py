"""Checkpoints of training, ours or the TensorFlow 1 reference's, with `options.json` beside them.

The folder stands for the weights: of its checkpoints the latest whole one is read. A folder that
holds checkpoints is a run, whatever else lies in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from bilm.errors import WeightsError
from bilm.language_model import BiLM
from bilm.options import ModelOptions, load_model_options
from bilm.storage import names
from bilm.storage.hdf5 import Held

NAME = "TensorFlow checkpoint"
HAS_SOFTMAX = True
EXPECTS = "words tokenized as the text that the model was trained on, their case kept"
OPTIONS, VOCABULARY, LIST = "options.json", "vocab.txt", "checkpoint"
INDEX = ".index"
PAIR = (OPTIONS, f"*{INDEX}")
OURS = re.compile(r"model\.ckpt-\d+(\.index|\.data-\d+-of-\d+)?")
PART = re.compile(r"(.+)(\.index|\.data-\d+-of-\d+)")


def find(paths: list[PurePath], where: Path) -> dict[str, PurePath] | None:
    """Return the files of a run, at the top or in one folder inside; None if there is none.

    Raises: WeightsError if there are several runs, or no options beside the checkpoints.
    """
    homes = {p.parent for p in paths if len(p.parts) <= 2 and _is_of_run(p, paths)}
    if at_the_top := {home for home in homes if not home.parts}:
        homes = at_the_top
    elif any(len(p.parts) == 1 and p.name.endswith(OPTIONS) for p in paths):
        return None  # the options of another model, which is what the folder is for
    if not homes:
        return None
    if len(homes) > 1:
        listed = ", ".join(sorted(home.as_posix() for home in homes))
        raise WeightsError(f"{where}: found runs in {listed}; expected one")
    home = homes.pop()
    beside = {p.name: p for p in paths if p.parent == home}
    if OPTIONS not in beside:
        raise WeightsError(f"{where}: holds checkpoints, but no {OPTIONS} beside them")
    is_part = (PART.fullmatch, OURS.fullmatch)
    parts = {n: p for n, p in sorted(beside.items()) if any(match(n) for match in is_part)}
    index = min(parts.values(), key=lambda p: not p.name.endswith(INDEX))
    vocabularies = [p for p in beside.values() if re.fullmatch(r"vocab.*\.txt", p.name)]
    found = {OPTIONS: home / OPTIONS, index.name: index, **parts}
    found |= {LIST: beside[LIST]} if LIST in beside else {}
    return found | ({VOCABULARY: vocabularies[0]} if len(vocabularies) == 1 else {})


def _is_of_run(path: PurePath, paths: list[PurePath]) -> bool:
    """Return whether a file shows that its folder is that of a run."""
    beside = (p.name for p in paths if p.parent == path.parent)
    is_list = path.name == LIST and any(name.endswith(INDEX) for name in beside)
    return is_list or OURS.fullmatch(path.name) is not None


def pair(options_file: Path, index_file: Path) -> tuple[Path, Path]:
    """Return the options and the folder, which stands for its latest whole checkpoint."""
    return options_file, options_file.parent


def owns(weight_file: Path) -> bool:
    """Return whether this is a folder, or the index of one checkpoint."""
    return weight_file.suffix == INDEX or weight_file.is_dir()


def open_run(weight_file: Path) -> Any:
    """Return the `StoredRun` of a folder's latest whole checkpoint, or that of an index file.

    Raises: OptionsError, WeightsError.
    """
    from bilm.storage.checkpoint import StoredRun  # which imports TensorFlow

    if weight_file.is_dir():
        return StoredRun(weight_file)
    return StoredRun(weight_file.parent, str(weight_file.with_suffix("")))


def newest(weight_file: Path) -> Path:
    """Return the index of the checkpoint that a folder stands for now.

    Raises: OptionsError, WeightsError.
    """
    return Path(f"{open_run(weight_file).path}{INDEX}")


def files(options_file: Path, weight_file: Path) -> list[Path]:
    """Return the files that are there: of a folder, those of all of its checkpoints."""
    folder = options_file.parent
    stem = None if weight_file.is_dir() else weight_file.stem
    parts = [p for p in sorted(folder.iterdir()) if (m := PART.fullmatch(p.name))
             and stem in (None, m[1])]  # fmt: skip
    return [options_file, *parts]


def read_options(options_file: Path, weight_file: Path) -> ModelOptions:
    """Read the options; where they do not say, the weights tell how many directions there are.

    Raises: OptionsError, WeightsError.
    """
    options = load_model_options(options_file)
    return options if options.bidirectional is not None else open_run(weight_file).options


def open_tensors(options_file: Path, weight_file: Path, options: ModelOptions) -> RunTensors:
    """Open the weights. Raises: OptionsError, WeightsError."""
    return RunTensors(open_run(weight_file))


class RunTensors:
    """The tensors of a run's checkpoint: see `bilm.storage.tensors.Tensors`."""

    def __init__(self, run: Any):
        from bilm.storage.checkpoint import checkpoint_names

        self._run, self.source = run, run.path
        path = Path(run.path).absolute()
        parts = [p for p in path.parent.iterdir() if p.name.startswith(f"{path.name}.")]
        self.paths = tuple(sorted(parts)) or (path,)
        model = BiLM(run.options, run.n_tokens, softmax=True)
        stored = names.stored_places(model)
        self.names = {n for n in stored if any(c in run.shapes for c in checkpoint_names(n))}

    def held(self) -> Held:
        """Count what the files store."""
        return self._run.held

    @contextmanager
    def opened(self) -> Iterator[Callable[[str], np.ndarray]]:
        """Give the function that reads a tensor, as a whole."""
        yield self._run.value
