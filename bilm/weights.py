"""Stored weights <-> variables: the one place that knows the names in files.

A model's variables have one stored name each, that of the HDF5 format which bilm-tf, AllenNLP and
simple_elmo share. Their values are stored as they lie in memory, but for the padding row of a
model with padding, which no file holds. A checkpoint of the TensorFlow 1 reference spells the
names differently; its values are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import h5py
import numpy as np
from absl import logging

from bilm.errors import WeightsError
from bilm.hdf5 import Held, dataset_names, held, numbers, open_hdf5, save_hdf5
from bilm.options import N_CHARACTERS, ModelOptions

__all__ = ["dataset_names", "open_hdf5", "save_hdf5"]  # beside what is defined here

SOFTMAX = "softmax/"
FAR = 4  # times as large as what its files hold: a model of other options than theirs
SMALL_MODEL, SMALL_PARTS = 1 << 20, 64  # numbers and variables of a model that is made anyway
PADDED = ("char_embed", "embedding")
HIGHWAY = ("W_carry", "b_carry", "W_transform", "b_transform")


def stored_variables(model) -> dict[str, object]:
    """Give a `BiLM`'s variables by their stored names, in the order of the graph."""
    named = _encoder_variables(model.encoder)
    for k, direction in enumerate(model.directions):
        for i, layer in enumerate(model.stacks[direction].layers):
            prefix = f"RNN_{k}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            named[f"{prefix}/W_0"], named[f"{prefix}/B"] = layer.cell.kernel, layer.cell.bias
            if layer.cell.projection is not None:
                named[f"{prefix}/W_P_0"] = layer.cell.projection
    if model.softmax is not None:
        if not model.options.share_embedding_softmax:
            named[SOFTMAX + "W"] = model.softmax.kernel
        named[SOFTMAX + "b"] = model.softmax.bias
    return named


def _encoder_variables(encoder) -> dict[str, object]:
    if not hasattr(encoder, "cnn"):
        return {"embedding": encoder.embedding}
    named = {"char_embed": encoder.cnn.embedding}
    for i, (kernel, bias) in enumerate(zip(encoder.cnn.kernels, encoder.cnn.biases, strict=True)):
        named[f"CNN/W_cnn_{i}"], named[f"CNN/b_cnn_{i}"] = kernel, bias
    highway = encoder.highway
    lists = (highway.gates, highway.gate_biases, highway.transforms, highway.biases)
    for i in range(highway.n_layers):
        for name, variables in zip(HIGHWAY, lists, strict=True):
            named[f"CNN_high_{i}/{name}"] = variables[i]
    if encoder.kernel is not None:
        named["CNN_proj/W_proj"], named["CNN_proj/b_proj"] = encoder.kernel, encoder.bias
    return named


def stored_values(model) -> dict[str, np.ndarray]:
    """Give the weights as files hold them: float32 by stored name, without a padding row."""
    values = {name: v.numpy() for name, v in stored_variables(model).items()}
    if model.padding:
        values.update({name: values[name][1:] for name in PADDED if name in values})
    return values


def other_names(name: str) -> list[str]:
    """Give the names under which a file may also hold a variable, the commonest first.

    One-layer models of the reference have no MultiRNNCell level, forward-only ones no `RNN_0`.
    """
    names = [name]
    if "/Cell0/" in name:
        names.append(name.replace("MultiRNNCell/Cell0/", ""))
    return names


def tf1_names(name: str) -> list[str]:
    """Give the names that the TensorFlow 1 reference may use for a stored name."""
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
    model,
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
        found = next((other for other in names(name) if other in stored), None)
        if found is None:
            raise WeightsError(f"{source}: {name} is missing; the options say that it is there")
        value = read(found)
        padded = model.padding and name in PADDED
        expected = tuple(variable.shape)
        expected = (expected[0] - 1, *expected[1:]) if padded else expected
        if value.shape != expected:
            raise WeightsError(
                f"{source}: {found} has shape {value.shape}, the options ask for {expected}"
            )
        with np.errstate(over="ignore"):  # a double that is no float32 becomes infinite
            value = np.asarray(value, dtype=np.float32)
        if not np.isfinite(value).all():
            raise WeightsError(f"{source}: {found} holds values that are not finite")
        if padded:
            value = np.concatenate([np.zeros_like(value[:1]), value])
        variable.assign(value)
        used.add(found)
    return used


def load_hdf5(model, path: str | Path, only: Callable[[str], bool] = lambda name: True) -> None:
    """Set a model's variables from an HDF5 weight file; extra datasets give one warning.

    Raises: WeightsError if the file is no whole HDF5 file, or as `assign` does.
    """
    with open_hdf5(path) as file:
        stored = dataset_names(file)
        used = assign(model, stored, lambda name: numbers(file, name), str(path), only=only)
        extra = sorted(name for name in stored - used if only(name))
    if extra:
        logging.warning("%s: %d datasets are not used: %s", path, len(extra), ", ".join(extra[:8]))


def has_backward(path: str | Path) -> bool:
    """Say whether an HDF5 weight file holds a backward stack."""
    with open_hdf5(path) as file:
        return any(name.startswith("RNN_1/") for name in dataset_names(file))


def is_bilm(name: str) -> bool:
    """Say whether a stored name belongs to the biLM, and not to its softmax."""
    return not name.startswith(SOFTMAX)


def n_words(path: str | Path) -> int:
    """Return the number of rows of a file's word table `embedding`.

    Raises: WeightsError if there is none.
    """
    with open_hdf5(path) as file:
        shape = numbers(file, "embedding").shape
    if len(shape) != 2 or not all(shape):
        raise WeightsError(f"{path}: embedding has shape {shape}, expected (words, projection_dim)")
    return shape[0]


def check_room(options: ModelOptions, *paths: str | Path | None, n_rows: int | None = None) -> None:
    """Refuse options of a model that is far larger than its files, before memory is taken for it.

    Smaller differences are left to `assign`, which knows the names.

    Args:
        paths: the HDF5 files whose values the model takes; None counts for none.
        n_rows: of the table that has a row for a word, `embedding` or `softmax/W`, if there is one.
    Raises: WeightsError.
    """
    n_datasets = n_held = 0
    for path in {Path(path) for path in paths if path is not None}:
        with open_hdf5(path) as file:
            found = held(file)
        n_datasets, n_held = n_datasets + found.n_datasets, n_held + found.n_numbers
    check_held(options, Held(n_datasets, n_held), str(paths[0]), n_rows)


def check_held(options: ModelOptions, found: Held, source: str, n_rows: int | None = None) -> None:
    """Refuse options of a model that is far larger than `found`; see `check_room`."""
    sizes = list(_sizes(options))
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


def n_numbers(options: ModelOptions) -> int:
    """Return the size of a biLM as files hold it, without the table of words and the softmax."""
    return sum(_sizes(options))


def _sizes(options: ModelOptions) -> Iterator[int]:
    """Yield the size of each variable that `n_numbers` counts."""
    cnn, lstm = options.char_cnn, options.lstm
    for _ in range(lstm.n_layers * (1 if options.bidirectional is False else 2)):
        yield 2 * lstm.projection_dim * 4 * lstm.dim
        yield 4 * lstm.dim
        if lstm.projection_dim != lstm.dim:
            yield lstm.dim * lstm.projection_dim
    if cnn is None:
        return
    yield N_CHARACTERS * cnn.embedding.dim
    for width, number in cnn.filters:
        yield width * cnn.embedding.dim * number
        yield number
    n_filters = sum(number for _, number in cnn.filters)
    for _ in range(cnn.n_highway):
        yield from (n_filters * n_filters, n_filters) * 2
    if n_filters != lstm.projection_dim:
        yield from (n_filters * lstm.projection_dim, lstm.projection_dim)
