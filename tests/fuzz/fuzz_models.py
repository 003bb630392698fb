"""Damaged models: exports, `.keras` files and configs, files of embeddings and folders of runs."""

import functools
import json
import random
import shutil
import tempfile
import zipfile
from copy import deepcopy
from pathlib import Path

import h5py
import keras
import numpy as np
from fuzzing import DTYPES, damaged, damaged_hdf5, expect, mutated, rewrite_hdf5
from stored_files import load_bilm
from tiny_runs import GOLDEN, HELDOUT, TEXT, VOCABULARY, load_run, tiny_options

import bilm
from bilm import Elmo
from bilm.export.hdf5 import dump_weights
from bilm.scoring.scorer import load_scorer
from bilm.storage.checkpoint import latest_checkpoint
from bilm.training.run_folder import RunFolder
from bilm.training.source import Source

# Errors that Keras raises for arguments of layers and for its archive.
KERAS_ERRORS = (ValueError, TypeError, KeyError, OSError, AttributeError, OverflowError)


@functools.cache
def home() -> Path:
    """Return a temporary folder for the undamaged files, removed when the process ends."""
    home.keep = tempfile.TemporaryDirectory(prefix="bilm_fuzz_")
    return Path(home.keep.name)


@functools.cache
def exported(reads: str) -> Path:
    run, vocabulary = GOLDEN / "checkpoint" / reads, GOLDEN / "data" / "vocab.txt"
    dump_weights(run, home() / reads, include_softmax=True, vocab_file=vocabulary)
    return home() / reads


@functools.cache
def saved_by_keras() -> tuple[Path, dict]:
    """Return a `.keras` file and the config of the layer in it."""
    tokens, elmo = keras.Input((None,), dtype="string"), Elmo(exported("chars"))
    keras.Model(tokens, elmo(tokens)).save(home() / "model.keras")
    return home() / "model.keras", elmo.get_config()


@functools.cache
def runs() -> list[Path]:
    """Return a run with a best checkpoint and a run of the reference."""
    bilm.train(
        TEXT, home() / "run", options=tiny_options(), vocab=VOCABULARY, heldout=HELDOUT,
        n_steps=3, checkpoint_steps=1, n_gpus=0,
    )  # fmt: skip
    return [home() / "run", GOLDEN / "checkpoint" / "chars"]


def damage_json(path: Path, rng: random.Random) -> None:
    text = json.dumps(mutated(json.loads(path.read_text()), rng)).encode()
    path.write_bytes(damaged(text, rng) if rng.random() < 0.3 else text)


def damage_stored(path: Path, rng: random.Random) -> None:
    """Change the attributes, a dataset or the bytes of an HDF5 file."""
    chance = rng.random()
    if chance < 0.2:
        with h5py.File(path, "r+") as file:
            file.attrs["bilm_export"] = rng.choice(["x", 3, np.zeros(3), "y" * 1000, b"\xff"])
    elif chance < 0.4 and path.stem.endswith("_softmax"):
        rewrite_words(path, rng)
    elif chance < 0.7:
        rewrite_hdf5(path, rng)
    if rng.random() < 0.4:
        path.write_bytes(damaged_hdf5(path.read_bytes(), rng))


def rewrite_words(path: Path, rng: random.Random) -> None:
    with h5py.File(path, "r+") as file:
        words = file["vocabulary"][...]
        del file["vocabulary"]
        match rng.randrange(8):
            case 0:
                file["vocabulary"] = words[: rng.choice([0, 1, 5])]
            case 1:
                file["vocabulary"] = np.array([b"\xff\xfe"] * len(words))
            case 2:
                file.create_dataset("vocabulary", (1 << 40,), h5py.string_dtype())
            case 3:
                file.create_dataset("vocabulary", (1 << 34,), "S7", chunks=True)
            case 4:
                file.create_dataset("vocabulary", words.shape, rng.choice(DTYPES))
            case 5:
                file["vocabulary"] = h5py.ExternalLink(str(path), "vocabulary")
            case 6:
                outside = [(str(path), 0, 8 * len(words))]
                file.create_dataset("vocabulary", words.shape, "S8", external=outside)
            case _:
                file["vocabulary"] = np.array([b"same"] * len(words))


def try_export(path: Path, rng: random.Random) -> None:
    reads = rng.choice(["chars", "tokens"])
    folder = fresh(exported(reads), path)
    target = folder / rng.choice(["options.json", "weights.hdf5", "weights_softmax.hdf5"])
    if rng.random() < 0.1:
        other = exported("tokens" if reads == "chars" else "chars")
        shutil.copy(other / target.name, target)
    elif target.suffix == ".json":
        damage_json(target, rng)
    else:
        damage_stored(target, rng)
    expect(lambda: load_scorer(folder))
    expect(load_bilm, folder)
    expect(lambda: Elmo(folder).build())


def try_keras(path: Path, rng: random.Random) -> None:
    """Change the config of a layer, for `from_config` and in a `.keras` file."""
    keras.utils.clear_session()
    original, config = saved_by_keras()
    config = mutated(config, rng)
    expect(lambda: Elmo.from_config(deepcopy(config)), also=KERAS_ERRORS)
    file = path.with_suffix(".keras")
    with zipfile.ZipFile(original) as old, zipfile.ZipFile(file, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            if member == "config.json":
                values = json.loads(content)
                layers = values["config"]["layers"]
                layer = next(layer for layer in layers if layer["class_name"] == "Elmo")
                layer["config"] = config
                content = json.dumps(values).encode()
            new.writestr(member, content)
    expect(keras.models.load_model, file, also=KERAS_ERRORS)


def try_run(path: Path, rng: random.Random) -> None:
    folder = fresh(rng.choice(runs()), path)
    files = [p for p in sorted(folder.rglob("*")) if p.is_file()]
    for target in rng.sample(files, rng.choice([1, 1, 2])):
        match rng.randrange(6):
            case 0:
                target.unlink()
            case 1:
                target.unlink()
                target.mkdir()
            case 2:
                content = rng.choice([p for p in files if p.is_file()]).read_bytes()
                target.write_bytes(content)
            case 3 if target.suffix == ".json":
                damage_json(target, rng)
            case 4 if target.name == "checkpoint":
                place = rng.choice(["/etc/passwd", "../run", "", "model.ckpt-9", "a" * 5000, "\n"])
                target.write_text(f'model_checkpoint_path: "{place}"\n')
            case _:
                target.write_bytes(damaged(target.read_bytes(), rng))
    expect(load_run, folder)
    expect(latest_checkpoint, folder)
    expect(RunFolder(folder).read_measured)
    expect(Source, folder)


def fresh(original: Path, path: Path) -> Path:
    """Copy a folder, replacing the copy of the previous input."""
    keras.utils.clear_session()  # Keras keeps loaded models, and memory is limited
    folder = path.with_suffix(".folder")
    shutil.rmtree(folder, ignore_errors=True)
    return shutil.copytree(original, folder)


def prepare() -> None:
    for make in (lambda: exported("tokens"), saved_by_keras, runs):
        make()


KINDS = {"export": try_export, "keras": try_keras, "run": try_run}
