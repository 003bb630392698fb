"""Damaged options, vocabularies, text, weights and archives."""

import gzip
import json
import random
import zipfile
from pathlib import Path

from fuzzing import damaged, damaged_hdf5, expect, mutated, rewrite_hdf5
from options_examples import RUN
from stored_files import load_bilm, resolve
from tiny_runs import GOLDEN

from bilm.data.shards import Shards, count_tokens
from bilm.data.vocabulary import UnicodeCharsVocabulary, Vocabulary
from bilm.options.run_options import load_model_options, load_run_options
from bilm.storage.stored_tensors import hdf5_tensors
from bilm.storage.stored_weights import StoredWeights

CASE = GOLDEN / "inference" / "tanh_nohighway_noskip_1layer"
MODEL = load_model_options(CASE / "options.json").replace(bidirectional=True)
DATA = GOLDEN / "data"


def prepare() -> None:
    load_bilm(CASE)


def options_text(rng: random.Random) -> bytes:
    text = json.dumps(mutated(RUN, rng)).encode()
    if rng.random() < 0.05:
        return b'{"a":' * 100_000
    return damaged(text, rng) if rng.random() < 0.4 else text


def try_options(path: Path, rng: random.Random) -> None:
    path.write_bytes(options_text(rng))
    for load in (load_run_options, load_model_options):
        expect(load, path)
    # Sizes that the weights do not have must not be allocated.
    expect(load_bilm, path, CASE / "weights.hdf5")


def try_vocabulary(path: Path, rng: random.Random) -> None:
    path.write_bytes(damaged((DATA / "vocab.txt").read_bytes(), rng))
    expect(Vocabulary, path)
    expect(lambda: Vocabulary(path, validate_file=True).encode("a b <S>"))
    expect(lambda: UnicodeCharsVocabulary(path, rng.choice([2, 3, 50])).word_char_ids)


def try_text(path: Path, rng: random.Random) -> None:
    content = b"a sentence of words .\n" * 20 + "\ufeffcafé \u2028 ,\r\n\n".encode() * 20
    pack = rng.choice([bytes, gzip.compress])
    content = damaged(pack(damaged(content, rng)), rng)
    path.write_bytes(content)
    expect(lambda: count_tokens(Shards([path])))
    expect(lambda: list(Shards([path]).sentences()))
    expect(lambda: list(Shards([path], "replace").sentences()))


def try_hdf5(path: Path, rng: random.Random) -> None:
    content = (CASE / "weights.hdf5").read_bytes()
    path.write_bytes(content)
    if rng.random() < 0.5:
        rewrite_hdf5(path, rng)
        content = path.read_bytes()
    if rng.random() < 0.6:
        path.write_bytes(damaged_hdf5(content, rng))
    expect(lambda: list(StoredWeights(MODEL, None, [hdf5_tensors(path)]).values()))
    expect(lambda: hdf5_tensors(path).n_words)


def try_zip(path: Path, rng: random.Random) -> None:
    path = path.with_suffix(".zip")
    names = ["options.json", "model.hdf5"]
    contents = [(CASE / name).read_bytes() for name in ("options.json", "weights.hdf5")]
    if rng.random() < 0.3:
        names[rng.randrange(2)] = rng.choice(
            ["../options.json", "/etc/options.json", "a\0.hdf5", "é" * 300, "a/model.hdf5", "C:\\a"]
        )
    with zipfile.ZipFile(path, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as file:
        for name, content in zip(names, contents, strict=True):
            info = zipfile.ZipInfo("x")
            info.filename, info.compress_type = name, file.compression
            file.writestr(info, content)
    content = path.read_bytes()
    if rng.random() < 0.5:
        content = damaged(content, rng)
    elif rng.random() < 0.9:  # the directory, which says where everything is
        head, mark, tail = content.partition(rng.choice([b"PK\x01\x02", b"PK\x05\x06"]))
        content = head + mark + damaged(tail, rng)
    path.write_bytes(content)
    expect(resolve, path)


KINDS = {"options": try_options, "vocabulary": try_vocabulary, "text": try_text}
KINDS |= {"hdf5": try_hdf5, "zip": try_zip}
