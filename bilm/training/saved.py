"""What a run's checkpoint says of the run, weights and states apart."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import NamedTuple

from bilm.data.stream import Position
from bilm.errors import WeightsError
from bilm.storage.checkpoint_folder import SUFFIX, open_checkpoint, read_latest, read_tensors

# What is kept. Weights, slots and the other states are read only to see that they are whole.
SMALL = ("step", "n_steps", "seed", "batch", "best", "shards", "state/0")
POSITION = "position/"


class Saved(NamedTuple):
    """What a whole checkpoint says of its run, weights and states apart.

    Fields:
        path: of the checkpoint.
        step, seed: how many steps were done, and by what they are keyed.
        n_steps: length of the run that was requested, None in checkpoints that do not say.
        n_rows: of the global batch.
        batch_size: rows per replica that were first requested.
        best: the best mean perplexity held out so far; infinite where nothing was measured.
        position: of the readers, None in checkpoints that have none.
        shards: names and sizes of the text's files, in order.
    """

    path: str
    step: int
    n_steps: int | None
    seed: int
    n_rows: int
    batch_size: int
    best: float
    position: Position | None
    shards: list[str]


def find_saved(save_dir: str | Path) -> Saved | None:
    """Find a run's latest whole checkpoint, each tensor of which can be read.

    Those after it, which a save that was cut short or a bad disk has left, are logged.

    Returns: what it says; None if there is no checkpoint.
    Raises: WeightsError if there are some and none is whole.
    """
    return read_latest(save_dir, read_saved)


def read_saved(path: str) -> Saved:
    """Return what a checkpoint says. Raises: WeightsError if a tensor of it cannot be read."""
    small = {
        key: value
        for name, value in read_tensors(open_checkpoint(path), path)
        if (key := name.removesuffix(SUFFIX)) in SMALL or key.startswith(POSITION)
    }
    if "step" not in small or "state/0" not in small:
        raise WeightsError(f"{path}: no step and no states; expected a checkpoint of training")
    position = {k.removeprefix(POSITION): v for k, v in small.items() if k.startswith(POSITION)}
    if not any(array.size for array in position.values()):
        position = None
    try:
        n_rows, batch_size = small.get("batch", [len(small["state/0"])] * 2)
        return Saved(
            path,
            step=int(small["step"]),
            n_steps=int(small["n_steps"]) if "n_steps" in small else None,
            seed=int(small["seed"]),
            n_rows=int(n_rows),
            batch_size=int(batch_size),
            best=float(small.get("best", math.inf)),
            position=position,
            shards=[os.fsdecode(name) for name in small.get("shards", [])],
        )
    except (TypeError, ValueError, KeyError) as error:
        raise WeightsError(f"{path}: not a checkpoint of training ({error!r})") from error
