"""The tensors of an ELMoForManyLangs model by bilm's stored names and in bilm's layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import logging

from bilm.errors import WeightsError
from bilm.options import ModelOptions
from bilm.storage.formats.state_dict import StateDict
from bilm.storage.hdf5 import Held

WORDS, CHARACTERS = "word_emb_layer.embedding.weight", "char_emb_layer.embedding.weight"
GATES = (0, 2, 1, 3)  # bilm's i, j, f, o among the stored i, f, g, o
DIRECTIONS = ("forward", "backward")
LAYER = "{}_layer_{}."


class Converted(NamedTuple):
    """A tensor that is read and converted when an array is made of it."""

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.read(), dtype)


class ManyLangsTensors:
    """See `bilm.storage.tensors.Tensors`.

    Args:
        embedder, encoder: the two state dicts.
        options: of the model, which say what is looked for; the rest gives one warning.
    Raises: WeightsError for a tensor that is missing or has another shape.
    """

    def __init__(self, embedder: StateDict, encoder: StateDict, options: ModelOptions):
        self._embedder, self._encoder = embedder, encoder
        self._found: dict[str, Converted] = {}
        self._used: set[tuple[StateDict, str]] = set()
        self.paths: tuple[Path, ...] = (encoder.path, embedder.path)
        self.source = str(encoder.path.parent)
        self._token_encoder(options)
        for k, direction in enumerate(DIRECTIONS):
            for layer in range(options.lstm.n_layers):
                prefix = f"RNN_{k}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
                self._lstm(prefix, LAYER.format(direction, layer), options)
        self.names = set(self._found)
        self._warn_of_extra()

    def held(self) -> Held:
        """Count what the files store."""
        both = self._embedder, self._encoder
        return Held(sum(len(d.shapes) for d in both), sum(d.n_numbers() for d in both))

    @contextmanager
    def opened(self) -> Iterator[Callable[[str], Converted]]:
        """Nothing stays open: each tensor opens its file."""
        yield self._found.__getitem__

    def _token_encoder(self, options: ModelOptions) -> None:
        encoder, width = options.lexicon_encoder, options.lstm.projection_dim
        words, characters, take = encoder.words, encoder.characters, self._from_embedder
        n_features = 0
        if words is not None:
            take("word_embed", WORDS, (words.n_rows, words.dim))
        if characters is not None:
            take("char_embed", CHARACTERS, (characters.n_rows, characters.dim))
            for i, (n_places, n) in enumerate(encoder.filters):
                stored, shape = f"convolutions.{i}", (n, characters.dim, n_places)
                new_shape = (1, n_places, characters.dim, n)
                take(f"CNN/W_cnn_{i}", f"{stored}.weight", shape, new_shape, _convolution)
                take(f"CNN/b_cnn_{i}", f"{stored}.bias", (n,))
                n_features += n
            for i in range(encoder.n_highway):
                self._highway(i, n_features)
        n_features += words.dim if words is not None else 0
        shape = (width, n_features)
        take("CNN_proj/W_proj", "projection.weight", shape, shape[::-1], np.transpose)
        take("CNN_proj/b_proj", "projection.bias", (width,))

    def _highway(self, i: int, n: int) -> None:
        stored, name, take = f"highways._layers.{i}", f"CNN_high_{i}", self._from_embedder
        for part, sign, rows in (("transform", 1, slice(0, n)), ("carry", -1, slice(n, 2 * n))):
            convert = partial(_signed_rows, rows=rows, sign=sign)
            take(f"{name}/W_{part}", f"{stored}.weight", (2 * n, n), (n, n), convert)
            take(f"{name}/b_{part}", f"{stored}.bias", (2 * n,), (n,), convert)

    def _lstm(self, name: str, stored: str, options: ModelOptions) -> None:
        dim, width = options.lstm.dim, options.lstm.projection_dim
        parts = [f"{stored}{part}_linearity.weight" for part in ("input", "state")]
        for part in parts:
            self._check(self._encoder, part, (4 * dim, width))
        kernels, shape = [partial(self._encoder.read, p) for p in parts], (2 * width, 4 * dim)
        dtype = self._encoder.dtypes[parts[0]]
        self._found[f"{name}/W_0"] = Converted(shape, dtype, partial(_kernel, kernels, shape))
        bias, projection = f"{stored}state_linearity.bias", f"{stored}state_projection.weight"
        self._take(self._encoder, f"{name}/B", bias, (4 * dim,), (4 * dim,), _bias)
        shape = width, dim
        self._take(self._encoder, f"{name}/W_P_0", projection, shape, shape[::-1], np.transpose)

    def _from_embedder(
        self,
        name: str,
        stored: str,
        shape: tuple,
        new_shape: tuple | None = None,
        convert: Callable = np.asarray,
    ) -> None:
        self._take(self._embedder, name, stored, shape, new_shape or shape, convert)

    def _take(
        self,
        source: StateDict,
        name: str,
        stored: str,
        shape: tuple,
        new_shape: tuple,
        convert: Callable,
    ) -> None:
        """Find a stored tensor, of which `convert` makes the one that has a name here."""
        self._check(source, stored, shape)
        self._found[name] = Converted(
            new_shape, source.dtypes[stored], lambda: convert(source.read(stored))
        )

    def _check(self, source: StateDict, name: str, shape: tuple[int, ...]) -> None:
        found = source.shapes.get(name)
        if found != shape:
            what = "is missing" if found is None else f"has shape {found}"
            expected = "the configuration asks for shape"
            raise WeightsError(f"{source.path}: {name} {what}, {expected} {shape}")
        self._used.add((source, name))

    def _warn_of_extra(self) -> None:
        for source in (self._embedder, self._encoder):
            extra = sorted(n for n in source.shapes if (source, n) not in self._used)
            if extra:
                shown = re.sub(r"[^ -~]", "?", ", ".join(extra[:8]))[:300]
                logging.warning("%s: %d tensors are not used: %s", source.path, len(extra), shown)


def _convolution(value: np.ndarray) -> np.ndarray:
    return value.transpose(2, 1, 0)[None]


def _signed_rows(value: np.ndarray, rows: slice, sign: int) -> np.ndarray:
    return sign * value[rows].T


def _kernel(parts: list[Callable[[], np.ndarray]], shape: tuple[int, int]) -> np.ndarray:
    """Return input over recurrent weights, the gates i, f, g, o in bilm's order i, g, f, o.

    Filled in place: this is the largest tensor, and it sets the peak of memory.
    """
    kernel, width, dim = np.empty(shape, np.float32), shape[0] // 2, shape[1] // 4
    with np.errstate(over="ignore"):  # an infinite value is refused later
        for k, read in enumerate(parts):
            stored = read()
            for place, gate in enumerate(GATES):
                columns = slice(place * dim, (place + 1) * dim)
                kernel[k * width : (k + 1) * width, columns] = stored[gate * dim :][:dim].T
    return kernel


def _bias(value: np.ndarray) -> np.ndarray:
    i, f, g, o = np.split(value, 4)
    return np.concatenate([i, g, f - 1, o])
