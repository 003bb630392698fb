"""Damaged inputs, made from seeds: each ends in success or in the project's own error.

Run in a process of its own (`python tests/fuzz_inputs.py <seed> <inputs of a kind>`), with a bound
on its memory, so that a hang, a crash of a C library or a huge allocation is seen as such.
"""

import gc
import gzip
import json
import os
import random
import resource
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import h5py
import numpy as np
from absl import logging
from options_examples import RUN

from bilm.data.shards import Shards, count_tokens
from bilm.data.vocabulary import UnicodeCharsVocabulary, Vocabulary
from bilm.errors import BilmError
from bilm.files import PREFIX
from bilm.language_model import BiLM
from bilm.options import load_model_options, load_run_options
from bilm.storage import names as weights
from bilm.storage.load import load_bilm
from bilm.storage.locate import resolve
from bilm.storage.tensors import HDF5Tensors

CASE = Path(__file__).parent / "golden" / "inference" / "tanh_nohighway_noskip_1layer"
DATA = Path(__file__).parent / "golden" / "data"
MEMORY = 1 << 30  # over what the process takes once the libraries are loaded
CPU_SECONDS = 10.0  # for one input; a busy machine takes longer by the clock

VALUES = [None, True, 0, -1, 1, 2, 3, 261, 262, 10**9, 10**400, 0.5, 1e308, "", "relu", "\ud800"]
VALUES += [[], {}, [[1, 4]], [[10**12, 10**12]], [[]], {"dim": 4}, float("nan"), float("inf")]
DTYPES = ["<f2", "<f8", ">f4", "<i4", "u1", "?", "<c8", "S3", [("a", "<f4")], h5py.string_dtype()]
BYTES = [b"\0", b"\xff", b"\xff\xfe", b"\r\n", b"\n", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\x1f\x8b"]
BYTES += [b"\xe2\x80\xa8", b" ", b"\t", b"<S>", b"!!!MAXTERMID", b"\xf4\x90\x80\x80", b"\x1c", b"]"]


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


def options_text(rng: random.Random) -> bytes:
    text = json.dumps(mutated(RUN, rng)).encode()
    if rng.random() < 0.05:
        return b'{"a":' * 100_000
    return damaged(text, rng) if rng.random() < 0.4 else text


def try_options(path: Path, rng: random.Random, loaded: object) -> None:
    path.write_bytes(options_text(rng))
    for load in (load_run_options, load_model_options):
        expect(load, path)
    # Sizes that the weights do not have must not be allocated.
    expect(load_bilm, path, CASE / "weights.hdf5")


def try_vocabulary(path: Path, rng: random.Random, loaded: object) -> None:
    path.write_bytes(damaged((DATA / "vocab.txt").read_bytes(), rng))
    expect(Vocabulary, path)
    expect(lambda: Vocabulary(path, validate_file=True).encode("a b <S>"))
    expect(lambda: UnicodeCharsVocabulary(path, rng.choice([2, 3, 50])).word_char_ids)


def try_text(path: Path, rng: random.Random, loaded: object) -> None:
    content = b"a sentence of words .\n" * 20 + "\ufeffcafé \u2028 ,\r\n\n".encode() * 20
    pack = rng.choice([bytes, gzip.compress])
    content = damaged(pack(damaged(content, rng)), rng)
    path.write_bytes(content)
    expect(lambda: count_tokens(Shards([path])))
    expect(lambda: list(Shards([path]).sentences()))
    expect(lambda: list(Shards([path], "replace").sentences()))


def rewrite_hdf5(path: Path, rng: random.Random) -> None:
    """Do to a dataset what no flipped byte would."""
    with h5py.File(path, "a") as file:
        names = sorted(weights.dataset_names(file))
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
                file.create_dataset(
                    name, data=value.astype(np.int32).astype(rng.choice(DTYPES[:7]))
                )
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


def try_hdf5(path: Path, rng: random.Random, model: BiLM) -> None:
    content = (CASE / "weights.hdf5").read_bytes()
    path.write_bytes(content)
    if rng.random() < 0.5:
        rewrite_hdf5(path, rng)
        content = path.read_bytes()
    if rng.random() < 0.6:
        path.write_bytes(damaged_hdf5(content, rng))
    expect(weights.load_hdf5, model, path)
    expect(weights.names_in, path)
    expect(lambda: weights.n_words(HDF5Tensors(path)))


def damaged_hdf5(content: bytes, rng: random.Random) -> bytes:
    """Damage what describes the values more often than the values."""
    if rng.random() < 0.2:
        return damaged(content, rng)
    marks = [b"TREE", b"HEAP", b"SNOD", b"OHDR", b"\x89HDF", b"W_0", b"char_embed"]
    start = max(content.find(rng.choice(marks)), 0)
    end = start + rng.choice([64, 512, 2048])
    content = bytearray(content)
    for _ in range(rng.choice([1, 2, 8])):
        at = rng.randrange(start, min(end, len(content)))
        content[at] = rng.choice(
            [0, 255, content[at] ^ (1 << rng.randrange(8)), rng.randrange(256)]
        )
    return bytes(content)


def try_zip(path: Path, rng: random.Random, loaded: object) -> None:
    path = path.with_suffix(".zip")
    names = ["options.json", "model.hdf5"]
    if rng.random() < 0.3:
        names[rng.randrange(2)] = rng.choice(
            ["../options.json", "/etc/options.json", "a\0.hdf5", "é" * 300, "a/model.hdf5", "C:\\a"]
        )
    with zipfile.ZipFile(path, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as file:
        for name in names:
            info = zipfile.ZipInfo("x")
            info.filename, info.compress_type = name, file.compression
            file.writestr(info, b"0123456789" * rng.choice([0, 5, 5000]))
    content = path.read_bytes()
    if rng.random() < 0.5:
        content = damaged(content, rng)
    elif rng.random() < 0.9:  # the directory, which says where everything is
        head, mark, tail = content.partition(rng.choice([b"PK\x01\x02", b"PK\x05\x06"]))
        content = head + mark + damaged(tail, rng)
    path.write_bytes(content)
    expect(resolve, path)


class Unexpected(Exception):
    """Another error than the project's own."""


def expect(call, *arguments, also: tuple[type[Exception], ...] = (OSError,)) -> None:
    """Call, and count what it ends in; `also` are errors that are right too."""
    start = time.process_time()
    try:
        call(*arguments)
        OUTCOMES["success"] += 1
    except BilmError as error:
        OUTCOMES["refused"] += 1
        if not str(error) or type(error) is BilmError:
            raise Unexpected(f"says nothing: {error!r}") from error
    except also:
        OUTCOMES["refused"] += 1
    except Exception as error:
        raise Unexpected(f"{type(error).__name__}: {error}") from error
    if (seconds := time.process_time() - start) > CPU_SECONDS:
        raise Unexpected(f"took {seconds:.0f} s of CPU time")


OUTCOMES = {"success": 0, "refused": 0}
KINDS = {
    "options": try_options,
    "vocabulary": try_vocabulary,
    "text": try_text,
    "hdf5": try_hdf5,
    "zip": try_zip,
}


def main(
    seed: int, n_inputs: int, kinds: dict[str, Callable], prepare: Callable = lambda: None
) -> int:
    """Try inputs of each kind; `prepare` is called before memory is bounded."""
    logging.set_verbosity(logging.ERROR)
    n_faults = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BILM_CACHE"] = f"{folder}/cache"
        model = BiLM(
            load_model_options(CASE / "options.json").replace(bidirectional=True), padding=True
        )
        model.build()
        prepare()
        gc.freeze()  # else clear_session looks through all of it, which takes most of the time
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY,) * 2)
        for kind, attempt in kinds.items():
            before, start = dict(OUTCOMES), time.monotonic()
            for i in range(n_inputs):
                path = Path(folder) / "input"
                # Named before, so that the one which kills the process is known.
                Path(sys.argv[0] + ".last").write_text(f"{kind} {seed} {i}") if KEEP else None
                try:
                    attempt(path, random.Random(f"{seed} {kind} {i}"), model)
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


KEEP = "FUZZ_LAST" in os.environ

if __name__ == "__main__":
    chosen = {name: KINDS[name] for name in sys.argv[3:] or KINDS}
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), chosen))
