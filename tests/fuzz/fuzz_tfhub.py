"""Damaged TensorFlow Hub modules."""

import functools
import random
import tarfile
from pathlib import Path

from fuzz_allennlp import try_model
from fuzz_models import fresh, home
from fuzzing import damaged
from tiny_runs import GOLDEN

ARCHIVE = next(iter(sorted((GOLDEN / "tfhub").glob("*/module.tar.gz"))), None)
FILES = {"graph": "saved_model.pb", "index": "variables/*.index", "data": "variables/*.data-*"}


def original() -> Path:
    folder = home() / "tfhub"
    if not folder.exists() and ARCHIVE is not None:
        with tarfile.open(ARCHIVE) as file:
            file.extractall(folder, filter="data")
    return folder


def try_file(kind: str, path: Path, rng: random.Random) -> None:
    """Change the bytes of a file, or remove it."""
    folder = fresh(original(), path)
    target = rng.choice(sorted(folder.glob(FILES[kind])))
    if rng.random() < 0.05:
        target.unlink()
    elif rng.random() < 0.9:
        content = target.read_bytes()
        # Flipped bits of the large files mostly have no effect: cut and overwrite these more.
        content = damaged(content, rng)
        if rng.random() < 0.5:
            content = content[: rng.randrange(len(content) + 1)]
        target.write_bytes(content)
    try_model(folder, rng.random() < 0.05)


def prepare() -> None:
    try_model(original(), True)


KINDS = {kind: functools.partial(try_file, kind) for kind in FILES}
