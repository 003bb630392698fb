"""The folder of a run as others read it: its model, with options and vocabulary beside it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bilm.data.vocabulary import Vocabulary, vocabulary_of
from bilm.errors import WeightsError
from bilm.files import expanded
from bilm.language_model import BiLM
from bilm.options import load_model_options
from bilm.storage import names as weights
from bilm.storage.checkpoint_folder import (
    SUFFIX,
    UNREADABLE,
    open_checkpoint,
    read_latest,
    read_tensors,
    reason,
)
from bilm.storage.hdf5 import Held

OPTIONS, VOCABULARY = "options.json", "vocab.txt"


class StoredRun:
    """A run's latest whole checkpoint, every tensor of which has been read once.

    Args:
        save_dir: a folder with `options.json` and checkpoints of ours or of the TensorFlow 1
            reference.
        path: a checkpoint in it; None for the latest whole one.
    Attributes: `path` of the checkpoint, `options` of the model, `n_tokens`, the words of its
        softmax, `shapes` of its tensors by name, and `held`, their count.
    Raises: OptionsError, WeightsError.
    """

    def __init__(self, save_dir: str | Path, path: str | None = None):
        save_dir = Path(expanded(save_dir))
        options = load_model_options(save_dir / OPTIONS)
        found = self._read(expanded(path)) if path else read_latest(save_dir, self._read)
        if found is None:
            raise WeightsError(
                f"{save_dir}: no whole checkpoint in this folder; expected that of a run"
            )
        self.path, self._reader, self.shapes, self.n_tokens = found
        self.held = _held(self.path, self.shapes)
        options = weights.with_directions(options, lambda: self.shapes)
        weights.check_held(options, self.held, self.path, self.n_tokens)
        self.options = options

    @staticmethod
    def _read(path: str) -> tuple:
        reader = open_checkpoint(path)
        shapes = reader.get_variable_to_shape_map()
        bias = next((n for n in checkpoint_names(weights.SOFTMAX + "b") if n in shapes), None)
        if bias is None or len(shapes[bias]) != 1:
            expected = "expected the checkpoint of a biLM's training"
            raise WeightsError(f"{path}: no softmax/b; {expected}")
        _held(path, shapes)  # before any memory is taken
        for _ in read_tensors(reader, path):
            pass
        return path, reader, shapes, shapes[bias][0]

    def assign(self, model: BiLM, only: Callable[[str], bool] = lambda name: True) -> None:
        """Set a model's variables, those whose stored names `only` takes.

        Raises: WeightsError, as `weights.assign` does or if the checkpoint is cut short.
        """
        weights.assign(model, self.shapes, self._tensor, self.path, checkpoint_names, only)

    def value(self, name: str) -> np.ndarray:
        """Return the value of a stored name. Raises: WeightsError if it cannot be read."""
        found = next((n for n in checkpoint_names(name) if n in self.shapes), None)
        if found is None:
            raise WeightsError(f"{self.path}: {name} is missing")
        return self._tensor(found)

    def state(self, model: BiLM) -> tuple[dict, int]:
        """Return the LSTM states in which the run left its rows, and their number.

        Raises: WeightsError if there are none, as in checkpoints of the TensorFlow 1 reference.
        """
        n_states = sum(name.startswith("state/") for name in self.shapes)
        if not n_states:
            raise WeightsError(
                f"{self.path}: holds no LSTM states; only checkpoints of bilm's training do"
            )
        arrays = [self._tensor(f"state/{i}{SUFFIX}") for i in range(n_states)]
        return model.pack_state(arrays), len(arrays[0])

    def _tensor(self, name: str) -> np.ndarray:
        try:
            return self._reader.get_tensor(name)
        except UNREADABLE as error:
            raise WeightsError(f"{self.path}: not a whole checkpoint ({reason(error)})") from error


def load_run(save_dir: str | Path) -> BiLM:
    """Build the language model, softmax included, of a run's latest checkpoint.

    Args:
        save_dir: a folder with `options.json` and checkpoints of ours or of the TensorFlow 1
            reference.
    Raises: OptionsError, WeightsError.
    """
    return load_model(StoredRun(save_dir))


def load_model(run: StoredRun) -> BiLM:
    """Build the language model, softmax included, of a checkpoint. Raises: WeightsError."""
    model = BiLM(run.options, run.n_tokens, softmax=True)
    model.build()
    run.assign(model)
    return model


def load_state(save_dir: str | Path, model: BiLM) -> tuple[dict, int]:
    """Return the LSTM states of a run's latest checkpoint: see `StoredRun.state`."""
    return StoredRun(save_dir).state(model)


def checkpoint_names(name: str) -> list[str]:
    """Return the names that a stored name may have in our checkpoints or the reference's."""
    return [f"weights/{name.replace('/', '.S')}{SUFFIX}", *weights.tf1_names(name)]


def run_vocabulary(
    save_dir: str | Path, model: BiLM, vocab_file: str | Path | None = None
) -> Vocabulary:
    """Load the vocabulary of a run's model.

    Args:
        vocab_file: None for `vocab.txt` in the folder, with whose words another file is compared.
    Raises: DataError if its size or its words are not the run's.
    """
    own = Path(expanded(save_dir)) / VOCABULARY
    vocab = model_vocabulary(str(vocab_file or own), model)
    if vocab_file is not None and own.exists():
        vocab.require_words_of(Vocabulary(own))
    return vocab


def model_vocabulary(vocab_file: str, model: BiLM) -> Vocabulary:
    """Load the vocabulary that a model was trained with.

    Raises: DataError if its size is not the model's.
    """
    return vocabulary_of(vocab_file, model.options, model.n_tokens)


def _held(path: str, shapes: dict[str, list[int]]) -> Held:
    """Count what a checkpoint holds. Raises: WeightsError if its files hold less."""
    name = os.path.basename(path)
    files = [p for p in Path(path).parent.iterdir() if p.name.startswith(f"{name}.data-")]
    if not files and os.path.exists(path):  # TensorFlow's first format, one file
        files = [Path(path)]
    n_bytes = sum(p.stat().st_size for p in files)
    sizes = [math.prod(shape) for shape in shapes.values()]
    if sum(sizes) > n_bytes:  # a number takes a byte or more
        raise WeightsError(
            f"{path}: not a whole checkpoint ({sum(sizes):,} numbers, {n_bytes:,} bytes)"
        )
    return Held(len(sizes), sum(sizes))
