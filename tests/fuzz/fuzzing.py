"""The harness of the fuzz programs, and random damage to bytes, JSON objects and HDF5 files."""

import gc
import json
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import h5py
import numpy as np
from absl import logging

from bilm.errors import BilmError
from bilm.storage.hdf5 import datasets_of
from bilm.support.files import PREFIX

MEMORY = 1 << 30  # bytes in addition to what the process uses after `prepare`
CPU_SECONDS = 10.0  # limit for one input, in CPU time because the machine may be busy
OUTCOMES = {"success": 0, "refused": 0}

VALUES = [None, True, 0, -1, 1, 2, 3, 261, 262, 10**9, 10**400, 0.5, 1e308, "", "relu", "\ud800"]
VALUES += [[], {}, [[1, 4]], [[10**12, 10**12]], [[]], {"dim": 4}, float("nan"), float("inf")]
DTYPES = ["<f2", "<f8", ">f4", "<i4", "u1", "?", "<c8", "S3", [("a", "<f4")], h5py.string_dtype()]
BYTES = [b"\0", b"\xff", b"\xff\xfe", b"\r\n", b"\n", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\x1f\x8b"]
BYTES += [b"\xe2\x80\xa8", b" ", b"\t", b"<S>", b"!!!MAXTERMID", b"\xf4\x90\x80\x80", b"\x1c", b"]"]


class Unexpected(Exception):
    """An input ended in neither success nor one clear error."""


def expect(call: Callable, *arguments, also: tuple[type[Exception], ...] = (OSError,)) -> None:
    """Call a function and count the outcome; `also` lists further errors that are correct."""
    start = time.process_time()
    try:
        call(*arguments)
        OUTCOMES["success"] += 1
    except BilmError as error:
        OUTCOMES["refused"] += 1
        if not str(error) or type(error) is BilmError:
            raise Unexpected(f"error without a message or a type: {error!r}") from error
    except also:
        OUTCOMES["refused"] += 1
    except Exception as error:
        raise Unexpected(f"{type(error).__name__}: {error}") from error
    if (seconds := time.process_time() - start) > CPU_SECONDS:
        raise Unexpected(f"took {seconds:.0f} s of CPU time")


def main(
    seed: int,
    n_inputs: int,
    kinds: dict[str, Callable[[Path, random.Random], None]],
    prepare: Callable[[], None] | None,
) -> int:
    """Try inputs of each kind and print the counts; return the exit status.

    Args:
        kinds: for each kind the function that writes one input and reads it.
        prepare: called before the process's memory is limited.
    """
    logging.set_verbosity(logging.ERROR)
    n_faults, last = 0, os.environ.get("FUZZ_LAST")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BILM_CACHE"] = f"{folder}/cache"
        if prepare:
            prepare()
        gc.freeze()  # clear_session collects garbage, which would take most of the time
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY,) * 2)
        for kind, attempt in kinds.items():
            before, start = dict(OUTCOMES), time.monotonic()
            for i in range(n_inputs):
                if last:
                    Path(last).write_text(f"{kind} {seed} {i}")
                try:
                    attempt(Path(folder) / "input", random.Random(f"{seed} {kind} {i}"))
                except Unexpected as error:
                    n_faults += 1
                    print(f"{kind} {i}: {error}")
                    traceback.print_exception(error.__cause__, limit=-4, file=sys.stdout)
            counts = {name: OUTCOMES[name] - before[name] for name in OUTCOMES}
            seconds = time.monotonic() - start
            print(kind, n_inputs, *(f"{k} {v}" for k, v in counts.items()), f"({seconds:.1f} s)")
        left = list(Path(folder).rglob(f"{PREFIX}*"))
        print(f"faults {n_faults}, partial files {len(left)}")
    return 1 if n_faults or left else 0


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Flip bytes, cut, repeat, overwrite or insert."""
    content = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(content) + 1)
        match rng.randrange(6):
            case 0:
                del content[at:]
            case 1:
                del content[at : at + rng.choice([1, 2, 64])]
            case 2:
                content[at:at] = rng.choice(BYTES) * rng.choice([1, 1, 100])
            case 3:
                content[at : at + 8] = rng.randbytes(8)
            case _ if content:
                content[min(at, len(content) - 1)] ^= 1 << rng.randrange(8)
    return bytes(content)


def mutated(values: dict, rng: random.Random) -> dict:
    """Replace, add or remove values of a JSON object, at any depth."""
    values = json.loads(json.dumps(values))
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = values
        while True:
            name = rng.choice([*at, "new"] if isinstance(at, dict) else range(len(at)))
            below = at.get(name) if isinstance(at, dict) else at[name]
            if not isinstance(below, dict | list) or not below or rng.random() < 0.4:
                break
            at = below
        if rng.random() < 0.2 and isinstance(at, dict):
            at.pop(name, None)
        else:
            at[name] = deepcopy(rng.choice(VALUES))
    return values


def rewrite_hdf5(path: Path, rng: random.Random) -> None:
    """Remove a dataset or replace it by one of another type, shape or kind."""
    with h5py.File(path, "a") as file:
        names = sorted(datasets_of(file))
        names = [name for name in names if file[name].dtype.kind == "f" and file[name].size]
        name = rng.choice(names)
        value = file[name][...]
        if rng.random() < 0.9:
            del file[name]
        elif rng.random() < 0.5:
            value[(0,) * value.ndim] = rng.choice([np.nan, np.inf])
            file[name][...] = value
        else:
            file.create_dataset("extra/one", data=value)
        if name in file:
            return
        match rng.randrange(10):
            case 0:
                other = value.astype(np.int32).astype(rng.choice(DTYPES[:7]))
                file.create_dataset(name, data=other)
            case 1:
                file.create_dataset(name, value.shape, rng.choice(DTYPES))
            case 2:
                file.create_dataset(name, (1 << 40, *value.shape[1:]), "<f4", chunks=True)
            case 3:
                file.create_dataset(name, data=h5py.Empty("<f4"))
            case 4:
                file.create_group(name)
            case 5:
                file[name] = h5py.SoftLink(f"/{name}")
            case 6:
                file[name] = h5py.ExternalLink(str(path), name)
            case 7:
                outside = [(str(path), 0, value.nbytes)]
                file.create_dataset(name, value.shape, value.dtype, external=outside)
            case 8:
                file.create_dataset(name, data=value, chunks=True, compression="gzip")
            case _:
                file.create_dataset(name, data=np.float32(1))


def damaged_hdf5(content: bytes, rng: random.Random) -> bytes:
    """Damage the metadata more often than the values."""
    if rng.random() < 0.2:
        return damaged(content, rng)
    marks = [b"TREE", b"HEAP", b"SNOD", b"OHDR", b"\x89HDF", b"W_0", b"char_embed"]
    start = max(content.find(rng.choice(marks)), 0)
    end = start + rng.choice([64, 512, 2048])
    content = bytearray(content)
    for _ in range(rng.choice([1, 2, 8])):
        at = rng.randrange(start, min(end, len(content)))
        flipped = content[at] ^ (1 << rng.randrange(8))
        content[at] = rng.choice([0, 255, flipped, rng.randrange(256)])
    return bytes(content)
