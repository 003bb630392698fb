"""Small runs on the golden corpus, trained once for all tests, whatever process they run in."""

import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from disk_faults import flip_bit
from options_examples import CHAR_CNN, LSTM, RUN

from bilm.options.run_options import RunOptions
from bilm.storage.stored_model import open_model
from bilm.training.devices import Devices, make_strategy
from bilm.training.run import TrainResult
from bilm.training.run import train as bilm_train

# The project's own copy: the tests that use it know its counts.
GOLDEN = Path(__file__).parents[1] / "golden"
TEXT, HELDOUT = str(GOLDEN / "data" / "train" / "*"), str(GOLDEN / "data" / "heldout" / "*")
VOCABULARY = GOLDEN / "data" / "vocab.txt"
N_CHARACTERS = 10  # of a word: the graph of a step has several operations for each

OPTIONS = RUN | {
    "char_cnn": CHAR_CNN | {"filters": [[1, 4], [2, 6]], "max_characters_per_token": N_CHARACTERS},
    "lstm": LSTM | {"dim": 8, "projection_dim": 4},
    "n_epochs": 2,
    "n_train_tokens": None,
    "n_tokens_vocab": None,
    "batch_size": 2,
    "unroll_steps": 5,
    "n_negative_samples_batch": 16,
}
VARIANTS = {
    "characters": {},
    "words": {"char_cnn": None},
    "shared_softmax": {"char_cnn": None, "share_embedding_softmax": True},
    "forward_only": {"bidirectional": False, "lstm": {"n_layers": 1}},
    "one_layer": {"lstm": {"n_layers": 1}},
    "no_projection": {"lstm": {"projection_dim": 8}},
    "no_cnn_projection": {"char_cnn": {"filters": [[1, 2], [2, 2]]}},
    "plain": {
        "char_cnn": {"activation": "tanh", "max_characters_per_token": 12, "n_highway": 0},
        "lstm": {"cell_clip": None, "proj_clip": None, "use_skip_connections": False},
    },
}
WORDS = {"char_cnn": None, "bidirectional": False, "lstm": {"n_layers": 1}}  # the fastest
REGULARIZED = {
    "variational_dropout": True,
    "embedding_dropout": 0.3,
    "weight_decay": 0.1,
    "dropout": 0.3,
    "optimizer": "adam",
}


def tiny_options(**changes) -> RunOptions:
    """The options of a tiny run; of an object only what is given is changed."""
    values = OPTIONS | changes
    for name in ("char_cnn", "lstm"):
        if isinstance(changes.get(name), dict):
            values[name] = OPTIONS[name] | changes[name]
    return RunOptions.from_dict(values)


@functools.cache
def on_cpu(n_replicas: int = 1):
    return make_strategy(n_gpus=0, cpu_replicas=n_replicas)


def train(options, vocab, text, save_dir, heldout=None, **others) -> TrainResult:
    """Train from random weights, as `bilm.train` does; the order of arguments is that of a run."""
    devices = Devices(others.pop("strategy", on_cpu()), others.pop("hosts", None))
    return bilm_train(
        text, save_dir, options=options, vocab=vocab, heldout=heldout, devices=devices, **others
    )


def tiny_run(variant: str) -> Path:
    """The folder of a run of two steps, not to be written to."""

    def make(folder):
        result = run(folder, 2, changes=VARIANTS[variant], checkpoint_steps=1_000)
        assert result.step == 2 and result.finished

    return made_once(variant, make)


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """A folder that is made by the first of a session's processes to want it."""
    home = Path(os.environ.get("BILM_TINY_RUNS") or _own_home().name)
    with open(home / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder, unfinished = home / name, home / f"{name}.unfinished"
        if not folder.exists():
            make(unfinished)
            unfinished.rename(folder)
    return folder


@functools.cache
def _own_home() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="bilm_runs_")


def run(save_dir, n_steps=4, text=TEXT, heldout=None, n_replicas=1, changes=WORDS, **arguments):
    """Train a tiny run, by default one that reads words forwards; it saves after each step."""
    options = tiny_options(**changes)
    arguments = {"strategy": on_cpu(n_replicas), "checkpoint_steps": 1} | arguments
    return train(
        options, str(VOCABULARY), text, str(save_dir), heldout, n_steps=n_steps, **arguments
    )


def three_steps() -> Path:
    """The folder of a run saved after each step and measured at its end, not to be written to."""
    return made_once(
        "three_steps", lambda f: run(f, 3, heldout=HELDOUT, checkpoint_steps=1, keep_checkpoints=9)
    )


def load_run(folder):
    """The language model of a run's latest whole checkpoint."""
    return open_model(folder).weights(has_softmax=True).build()


def weights_of(folder):
    """The weights of a model with its softmax, as stored."""
    return dict(open_model(folder).weights(has_softmax=True).values())


def assert_same_values(found, expected, atol=0.0):
    """Arrays by name are equal, or differ by at most `atol`."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=atol, err_msg=name)


def assert_same_weights(first, second, atol=0.0):
    """Two runs ended with the same weights, or with weights that differ by at most `atol`."""
    assert_same_values(weights_of(first), weights_of(second), atol)


def before_last_save(folder, step, copy):
    """Copy a run as a kill before its save of a step leaves it."""
    shutil.copytree(folder, copy)
    for path in copy.glob(f"model.ckpt-{step}*"):
        path.unlink()


def damage(folder, step, how):
    data, index = (folder / f"model.ckpt-{step}.{end}" for end in ("data-00000-of-00001", "index"))
    if how == "cut":
        data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    elif how == "index cut":
        index.write_bytes(index.read_bytes()[:-9])
    elif how == "a byte":
        flip_bit(data)
    elif how == "empty":
        data.write_bytes(b"")
    elif how == "no data":
        data.unlink()
    else:
        index.unlink()
