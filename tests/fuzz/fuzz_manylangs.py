"""Damaged ELMoForManyLangs models; none of them may execute code."""

import json
import os
import random
import zipfile
from pathlib import Path

import numpy as np
from fuzz_models import fresh, home
from fuzzing import damaged, expect, mutated
from manylangs_files import Reduced, legacy, small, write_model, zipped
from stored_files import load_bilm

from bilm import Elmo, ElmoEmbedder
from bilm.storage.formats.pytorch import StateDict

SENTENCES = [["The", "cat", "T\u00e9"], []]
SIZES = (-1, 0, 1, 3, 1 << 31, 1 << 62, 1 << 63, True, None, "3")
GLOBALS = ("posix system", "builtins eval", "torch._utils _rebuild_tensor", "torch LongStorage")
LINES = (b"", b"\t", b"x", b"x\t", b"x\t-1", b"x\t99999999999", b"\xff\t1", b"a\tb\t2", b"\t3")


class Shell:
    """Executes a command if it is unpickled."""

    def __reduce__(self):
        return os.system, (f"touch {home() / 'executed'}",)


def original(packed: bool) -> Path:
    folder = home() / ("zip" if packed else "legacy")
    return folder if folder.exists() else write_model(folder, packed=packed)


def copied(path: Path, rng: random.Random) -> tuple[Path, bool]:
    packed = rng.random() < 0.5
    return fresh(original(packed), path), packed


def write_changed(target: Path, tensors: dict, packed: bool, rng: random.Random) -> None:
    """Write a state dict with a changed tensor, name or description, or with changed bytes."""
    key, how = rng.choice(sorted(tensors)), {}
    match rng.randrange(8):
        case 0:
            tensors[key] = Shell()
        case 1:
            array = tensors[key]
            shape = tuple(rng.choice([*array.shape, *SIZES]) for _ in array.shape)
            strides = tuple(rng.choice([1, *array.shape, *SIZES]) for _ in array.shape)
            tensors[key] = Reduced(array, rng.choice(SIZES), shape, strides)
        case 2:
            how = {"count": rng.choice(SIZES), "view": rng.choice([None, ("0", 0, 1)])}
        case 3:
            how = {"little": False} if rng.random() < 0.5 else {"version": rng.choice(SIZES)}
        case 4:
            tensors[key] = tensors[key] * rng.choice([np.nan, np.inf, 1e30, 2])
        case 5:
            tensors[rng.choice(["x", 3, key])] = rng.choice([None, [[]], "x", 1 << 70, {"a": key}])
        case 6:
            name = key.replace(rng.choice(["0", "_", "."]), rng.choice(["1", "", "9", "\n"]))
            tensors[name] = tensors.pop(key)
        case _:
            del tensors[key]
    target.write_bytes(legacy(tensors, **how) if how or not packed else zipped(tensors))
    if rng.random() < 0.35:
        target.write_bytes(damaged(target.read_bytes(), rng))
    if rng.random() < 0.1:
        content = target.read_bytes()
        names = [found.encode().replace(b" ", b"\n") for found in GLOBALS]
        target.write_bytes(content.replace(b"collections\nOrderedDict", rng.choice(names)))


def try_state_dict(path: Path, rng: random.Random) -> None:
    folder, packed = copied(path, rng)
    target = folder / rng.choice(["encoder.pkl", "token_embedder.pkl"])
    write_changed(target, small()[target.name], packed, rng)
    expect(StateDict, target)
    try_folder(folder, rng.random() < 0.05)


def try_zip(path: Path, rng: random.Random) -> None:
    """Change the members of a ZIP file."""
    folder = copied(path, rng)[0]
    target = folder / rng.choice(["encoder.pkl", "token_embedder.pkl"])
    content = zipped(small()[target.name])
    target.write_bytes(content)
    with zipfile.ZipFile(target) as old:
        members = {name: old.read(name) for name in old.namelist()}
    victim = rng.choice(sorted(members))
    how = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(target, "w", how) as new:
        for name, value in members.items():
            if name == victim:
                name = rng.choice([name, name, "data.pkl", f"../{name}", "archive/data/9"])
                value = rng.choice([b"", b"big", value[:-1], value * 2, damaged(value, rng)])
            new.writestr(name, value)
    expect(StateDict, target)
    try_folder(folder, rng.random() < 0.05)


def try_text(path: Path, rng: random.Random) -> None:
    """Change lexicons and JSON."""
    folder = copied(path, rng)[0]
    target = folder / rng.choice(["char.dic", "word.dic", "config.json", "model.json"])
    content = target.read_bytes()
    if target.suffix == ".json":
        content = json.dumps(mutated(json.loads(content), rng)).encode()
    else:
        lines = content.split(b"\n")
        lines[rng.randrange(len(lines))] = rng.choice(LINES)
        content = b"\n".join(lines)
    target.write_bytes(damaged(content, rng) if rng.random() < 0.3 else content)
    if rng.random() < 0.1:
        target.unlink()
    try_folder(folder, rng.random() < 0.05)


def try_folder(folder: Path, embeds: bool) -> None:
    expect(load_bilm, folder)
    if embeds:  # which takes a second
        expect(lambda: ElmoEmbedder(folder).embed_batch(SENTENCES))
        expect(lambda: Elmo(folder).build())
    assert not (home() / "executed").exists(), folder


def prepare() -> None:
    for packed in (False, True):
        try_folder(original(packed), True)


KINDS = {"state_dict": try_state_dict, "zip": try_zip, "text": try_text}
