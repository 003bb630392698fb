"""Stored weights <-> variables: the one place that knows the names in files.

A model's variables have one stored name each, that of the HDF5 format which bilm-tf, AllenNLP and
simple_elmo share. Their values are stored as they lie in memory, but for the padding row of a
model with padding, which no file holds. A checkpoint of the TensorFlow 1 reference spells the
names differently; its values are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from absl import logging

from bilm.errors import WeightsError
from bilm.layers.token_encoder import WordEncoder
from bilm.layers.weighted import WeightedLayer
from bilm.options import ModelOptions
from bilm.sizes import dense_sizes
from bilm.storage.hdf5 import Held, dataset_names, held, numbers, open_hdf5, save_hdf5
from bilm.storage.tensors import Tensors

__all__ = ["dataset_names", "open_hdf5", "save_hdf5"]  # beside what is defined here

SOFTMAX = "softmax/"
FAR = 4  # times as large as what its files hold: a model of other options than theirs
SMALL_MODEL, SMALL_PARTS = 1 << 20, 64  # numbers and variables of a model that is made anyway
PADDED = ("char_embed", "embedding", "word_embed")
HIGHWAY = {
    "W_carry": "gate",
    "b_carry": "gate_bias",
    "W_transform": "transform",
    "b_transform": "bias",
}


def stored_places(model: Any) -> dict[str, tuple[WeightedLayer, str]]:
    """Return where a `BiLM` keeps its variables: layer and name in it, by stored name.

    They are in the order of the graph, and known before the model is built.
    """
    places = _encoder_places(model.encoder)
    for k, direction in enumerate(model.directions):
        for i, layer in enumerate(model.stacks[direction].layers):
            prefix = f"RNN_{k}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            places[f"{prefix}/W_0"] = layer.cell, "kernel"
            places[f"{prefix}/B"] = layer.cell, "bias"
            if layer.cell.has_projection:
                places[f"{prefix}/W_P_0"] = layer.cell, "projection"
    if model.softmax is not None:
        if not model.options.share_embedding_softmax:
            places[SOFTMAX + "W"] = model.softmax, "kernel"
        places[SOFTMAX + "b"] = model.softmax, "bias"
    return places


def _encoder_places(encoder: Any) -> dict[str, tuple[WeightedLayer, str]]:
    if isinstance(encoder, WordEncoder):
        return {"embedding": (encoder, "embedding")}
    places = {} if encoder.words is None else {"word_embed": (encoder, "word_table")}
    if encoder.filters:
        places["char_embed"] = encoder.cnn, "embedding"
    for i in range(len(encoder.filters)):
        places[f"CNN/W_cnn_{i}"] = encoder.cnn, f"kernel_{i}"
        places[f"CNN/b_cnn_{i}"] = encoder.cnn, f"bias_{i}"
    for i in range(encoder.n_highway if encoder.filters else 0):
        for stored, name in HIGHWAY.items():
            places[f"CNN_high_{i}/{stored}"] = encoder.highway, f"{name}_{i}"
    if encoder.has_projection:
        places["CNN_proj/W_proj"] = encoder, "kernel"
        places["CNN_proj/b_proj"] = encoder, "bias"
    return places


def stored_variables(model: Any) -> dict[str, object]:
    """Return a built `BiLM`'s variables by their stored names, in the order of the graph."""
    places = stored_places(model)
    return {stored: layer.own_weight(name) for stored, (layer, name) in places.items()}


def stored_values(model: Any) -> dict[str, np.ndarray]:
    """Return the weights as files hold them: float32 by stored name, without a padding row."""
    values = {name: v.numpy() for name, v in stored_variables(model).items()}
    if model.padding:
        values.update({name: values[name][1:] for name in PADDED if name in values})
    return values


def other_names(name: str) -> list[str]:
    """Return the names under which a file may also hold a variable, the commonest first.

    One-layer models of the reference have no MultiRNNCell level, forward-only ones no `RNN_0`.
    """
    names = [name]
    if "/Cell0/" in name:
        names.append(name.replace("MultiRNNCell/Cell0/", ""))
    return names


def tf1_names(name: str) -> list[str]:
    """Return the names that the TensorFlow 1 reference may use for a stored name."""
    names = []
    for other in other_names(name):
        other = re.sub(r"/RNN/", "/rnn/", other)
        other = re.sub(r"MultiRNNCell/Cell(\d+)", r"multi_rnn_cell/cell_\1", other)
        other = other.replace("LSTMCell/W_P_0", "lstm_cell/projection/kernel")
        other = other.replace("LSTMCell/W_0", "lstm_cell/kernel")
        other = other.replace("LSTMCell/B", "lstm_cell/bias")
        names.append(f"lm/{other}")
        if other.startswith("RNN_0/rnn/"):
            names.append("lm/" + other.removeprefix("RNN_0/"))
    return names


def assign(
    model: Any,
    stored: Iterable[str],
    read: Callable[[str], np.ndarray | h5py.Dataset],
    source: str,
    names: Callable[[str], list[str]] = other_names,
    only: Callable[[str], bool] = lambda name: True,
) -> set[str]:
    """Set a model's variables from values by name.

    Args:
        model: a built `BiLM`.
        stored: the names that the source holds.
        read: gives the value of one of them, an array or what becomes one when its shape is right.
        source: what the values come from, for messages.
        names: the names a variable may have there.
        only: which stored names to set.
    Returns: the names of the source that were used.
    Raises: WeightsError for a value that is missing, of another shape or not finite.
    """
    stored, used = set(stored), set()
    for name, variable in stored_variables(model).items():
        if not only(name):
            continue
        found = stored_name(name, stored, source, names)
        padded = model.padding and name in PADDED
        value = checked(read(found), tuple(variable.shape), padded, f"{source}: {found}")
        variable.assign(value)
        used.add(found)
    return used


def stored_name(
    name: str,
    stored: set[str],
    source: str,
    names: Callable[[str], list[str]] = other_names,
) -> str:
    """Return the name under which a source holds a variable. Raises: WeightsError."""
    for found in names(name):
        if found in stored:
            return found
    raise WeightsError(f"{source}: {name} is missing; the options say that it is there")


def checked(value: Any, shape: tuple[int, ...], padded: bool, where: str) -> np.ndarray:
    """Return a stored value as its variable holds it.

    Args:
        value: an array, or what becomes one when its shape is right.
        shape: of the variable.
        padded: whether the variable has a row of zeros above the stored ones.
        where: the value's source and name, for messages.
    Raises: WeightsError for a value of another shape or not finite.
    """
    check_shape(value, shape, padded, where)
    with np.errstate(over="ignore"):  # a double that is no float32 becomes infinite
        value = np.asarray(value, dtype=np.float32)
    if not np.isfinite(value).all():
        raise WeightsError(f"{where} holds values that are not finite")
    return np.concatenate([np.zeros_like(value[:1]), value]) if padded else value


def check_shape(value: Any, shape: tuple[int, ...], padded: bool, where: str) -> None:
    """Check a stored value's shape: see `checked`. Raises: WeightsError."""
    expected = (shape[0] - 1, *shape[1:]) if padded else shape
    if value.shape != expected:
        raise WeightsError(f"{where} has shape {value.shape}, the options ask for {expected}")


def load_hdf5(
    model: Any, path: str | Path, only: Callable[[str], bool] = lambda name: True
) -> None:
    """Set a model's variables from an HDF5 weight file; extra datasets give one warning.

    Raises: WeightsError if the file is no whole HDF5 file, or as `assign` does.
    """
    with open_hdf5(path) as file:
        stored = dataset_names(file)
        used = assign(model, stored, lambda name: numbers(file, name), str(path), only=only)
    warn_of_extra(stored - used, path, only)


def warn_of_extra(unused: set[str], path: str | Path, only: Callable[[str], bool]) -> None:
    """Log one warning for the datasets of a file that should be in a model and are not."""
    extra = sorted(filter(only, unused))
    if extra:
        logging.warning("%s: %d datasets are not used: %s", path, len(extra), ", ".join(extra[:8]))


def with_directions(options: ModelOptions, stored: Callable[[], Iterable[str]]) -> ModelOptions:
    """Return options that say how many directions there are: where they do not, weights decide.

    Args:
        options: of a stored model.
        stored: returns the names of its weights, in HDF5 or in a checkpoint of TensorFlow 1.
    """
    if options.bidirectional is not None:
        return options
    return options.replace(bidirectional=any("RNN_1/" in name for name in stored()))


def names_in(path: str | Path) -> set[str]:
    """Return the names of the datasets of an HDF5 file. Raises: WeightsError if it is none."""
    with open_hdf5(path) as file:
        return set(dataset_names(file))


def is_bilm(name: str) -> bool:
    """Return whether a stored name belongs to the biLM, and not to its softmax."""
    return not name.startswith(SOFTMAX)


def n_words(stored: Tensors) -> int:
    """Return the number of rows of the word table `embedding`. Raises: WeightsError."""
    with stored.opened() as tensor:
        shape = tensor("embedding").shape
    if len(shape) != 2 or not all(shape):
        raise WeightsError(
            f"{stored.source}: embedding has shape {shape}, expected (words, projection_dim)"
        )
    return shape[0]


def check_room(options: ModelOptions, *paths: str | Path, n_rows: int | None = None) -> None:
    """Refuse options of a model that is far larger than its files, before memory is taken for it.

    Smaller differences are left to `assign`, which knows the names.

    Args:
        paths: the HDF5 files whose values the model takes.
        n_rows: of the table that has a row for a word, `embedding` or `softmax/W`, if there is one.
    Raises: WeightsError.
    """
    n_datasets = n_held = 0
    for path in map(Path, paths):
        with open_hdf5(path) as file:
            found = held(file)
        n_datasets, n_held = n_datasets + found.n_datasets, n_held + found.n_numbers
    check_held(options, Held(n_datasets, n_held), str(paths[0]), n_rows)


def check_held(options: ModelOptions, found: Held, source: str, n_rows: int | None = None) -> None:
    """Refuse options of a model that is far larger than `found`; see `check_room`."""
    sizes = list(dense_sizes(options))
    if len(sizes) > FAR * found.n_datasets + SMALL_PARTS:
        raise WeightsError(
            f"{source}: holds {found.n_datasets:,} datasets, but the options ask for a model of "
            f"{len(sizes):,}"
        )
    asked = sum(sizes) + (n_rows or 0) * options.lstm.projection_dim
    if asked > FAR * found.n_numbers + SMALL_MODEL:
        raise WeightsError(
            f"{source}: holds {found.n_numbers:,} numbers, but the options ask for a model of "
            f"{asked:,}"
        )
