"""Runs a biLM over sentences, selects its layers, and collects or pools the vectors of words."""

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from itertools import pairwise

import numpy as np

from bilm.embedding.forms import POOLS
from bilm.errors import OptionsError, require_one_of
from bilm.inference.backend import Backend, ByDirection
from bilm.inference.packing import Packing, pack, run_windows
from bilm.options.model_options import ModelOptions

Layers = str | Sequence[int]  # see `ElmoEmbedder`
SELECTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "all": lambda array: array,
    "top": lambda array: array[-1],
    "average": lambda array: array.mean(axis=0),
    "sum": lambda array: array.sum(axis=0),
}


class Selection:
    """The layers to select from arrays (n_layers, ..., T, P) of a model, and how to pool the words
    of a sentence: see `ElmoEmbedder.embed_sentences`.

    Attributes: `select`, the function that selects the layers; `numbers` of the selected layers,
        empty for a name such as "top"; `shape` of the vectors of a word or a pooled sentence: (D,),
        or (layers, D), and their total size, `n_features`; `features` of each direction of the
        model, a slice of D.
    Raises: OptionsError for missing or repeated layers, an unknown pool, `normalize` without pool.
    """

    def __init__(self, options: ModelOptions, layers: Layers, pool: str, normalize: bool):
        require_one_of("pool", pool, POOLS)
        if normalize and pool == "none":
            raise OptionsError(
                "normalize requires one vector per sentence: set pool to mean or max"
            )
        self.pool = pool
        self.normalize = normalize
        n_layers = options.lstm.n_layers + 1
        if isinstance(layers, str) and layers in SELECTIONS:
            self.select = SELECTIONS[layers]
            self.numbers = list(range(n_layers)) if layers == "all" else []
        else:
            self.numbers = _layer_numbers(layers)
            self.select = operator.itemgetter(self.numbers)
            if not self.numbers or not all(0 <= i < n_layers for i in self.numbers):
                raise OptionsError(
                    f"layers is {layers!r}, expected {', '.join(SELECTIONS)} or a list of numbers "
                    f"from 0 to {n_layers - 1}"
                )
            if len(set(self.numbers)) < len(self.numbers):
                raise OptionsError(f"layers is {self.numbers}: a layer occurs twice")
        width = options.lstm.projection_dim
        self.features: dict[str, slice] = {}
        for k, direction in enumerate(options.directions):
            self.features[direction] = slice(k * width, (k + 1) * width)
        dim = len(self.features) * width
        self.shape = (len(self.numbers), dim) if self.numbers else (dim,)
        self.n_features = math.prod(self.shape)


def side_by_side(vectors: np.ndarray) -> np.ndarray:
    """Concatenate the layers of words: (layers, T, D) -> (T, layers * D), or (T, D) unchanged."""
    return vectors if vectors.ndim == 2 else np.concatenate(vectors, axis=1)


def _layer_numbers(layers: Layers) -> list[int]:
    """Return the numbers in `layers`; an empty list if it contains anything else."""
    try:
        if isinstance(layers, str):
            return [int(number) for number in layers.split(",")]
        return [operator.index(number) for number in layers]
    except (TypeError, ValueError):
        return []


def collected(
    backend: Backend,
    table: np.ndarray,
    tokens: np.ndarray,
    lengths: np.ndarray,
    selection: Selection,
    batch_tokens: int,
) -> Generator[tuple[int, np.ndarray], None, None]:
    """Yield the number and the vectors of each sentence when its last step is computed: float32
    (..., T, D), or (..., D) if pooled.

    Args:
        table: token vectors, float32 (U, P).
        tokens: all sentences with their marks, rows of the table, integer (N,); -1 for padding,
            which has the vector zero and is not read.
        lengths: of the sentences with their marks, integer (n,).
        batch_tokens: tokens that are computed at a time.
    """
    # The number of the result of each token, which is of its word or its sentence; -1 for marks.
    stops = np.cumsum(lengths)
    numbers: np.ndarray = np.repeat(np.arange(len(lengths)), lengths)
    if selection.pool == "none":
        numbers = np.arange(len(tokens)) - 2 * numbers - 1
    numbers[stops - lengths] = numbers[stops - 1] = -1

    # What each direction reads at each row and step: all tokens but the mark at its end, on which
    # no result depends.
    is_read = tokens >= 0
    n_steps = np.add.reduceat(is_read, stops - lengths, dtype=np.int64) - 1
    packing = pack(n_steps)
    rows, steps_of = _reading_steps(packing, n_steps)
    ends_of = {"forward": stops - 1, "backward": stops - lengths}
    places: ByDirection = {}
    numbers_at: ByDirection = {}
    for direction in selection.features:
        is_used = is_read.copy()
        is_used[ends_of[direction]] = False
        places[direction] = np.zeros(packing.shape, np.int32)
        places[direction][rows, steps_of[direction]] = tokens[is_used]
        numbers_at[direction] = np.full(packing.shape, -1)
        numbers_at[direction][rows, steps_of[direction]] = numbers[is_used]

    kind: type[Unpooled | Pooled] = Unpooled if selection.pool == "none" else Pooled
    results = kind(selection, lengths - 2, numbers[~is_read])
    ends = packing.starts + n_steps
    waiting = np.argsort(-ends, kind="stable").tolist()
    for steps, layers in run_windows(backend, packing, table, places, batch_tokens):
        for direction, outputs in layers.items():
            vectors = selection.select(outputs)
            results.add(direction, numbers_at[direction][:, steps], vectors)
        while waiting and ends[waiting[-1]] <= steps.stop:
            k = waiting.pop()
            yield k, results.of(k)


def _reading_steps(
    packing: Packing, n_steps: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the row of each token, in the order of the text, and the step at which each direction
    reads it: integer (N,). `n_steps`: tokens of each sentence, N in total."""
    rows: np.ndarray = np.repeat(packing.rows, n_steps)
    firsts = np.cumsum(n_steps) - n_steps  # number of the first token of each sentence
    forward = np.arange(len(rows)) + np.repeat(packing.starts - firsts, n_steps)
    first_and_last = 2 * packing.starts + n_steps - 1
    backward = np.repeat(first_and_last, n_steps) - forward
    return rows, {"forward": forward, "backward": backward}


class Unpooled:
    """The vectors of all words, in one array with a last row for those of no word. `n_words`: of
    each sentence, integer (n,); `padding`: the numbers of words that have the vector zero."""

    def __init__(self, selection: Selection, n_words: np.ndarray, padding: np.ndarray):
        *layers, dim = selection.shape
        self._features = selection.features
        self._n_words = n_words
        self._stops = np.cumsum(n_words)
        self._vectors: np.ndarray = np.empty((*layers, n_words.sum() + 1, dim), np.float32)
        self._vectors[..., padding, :] = 0

    def add(self, direction: str, numbers: np.ndarray, vectors: np.ndarray) -> None:
        """Add vectors, (..., B, T, P), with the numbers of their words, (B, T)."""
        for layer in np.ndindex(vectors.shape[:-3]):  # twice as fast as all at once
            self._vectors[layer][numbers, self._features[direction]] = vectors[layer]

    def of(self, k: int) -> np.ndarray:
        """Return the vectors of the words of a sentence, a view."""
        return self._vectors[..., self._stops[k] - self._n_words[k] : self._stops[k], :]


class Pooled:
    """The pooled vectors of the sentences that are computed. `padding`: the numbers of the
    sentences of words that do not count."""

    def __init__(self, selection: Selection, n_words: np.ndarray, padding: np.ndarray):
        self._selection = selection
        self._n_words = n_words - np.bincount(padding, minlength=len(n_words))
        self._join, start = (np.add, 0.0) if selection.pool == "mean" else (np.maximum, -np.inf)
        self._running: defaultdict[int, np.ndarray] = defaultdict(
            lambda: np.full(selection.shape, start)
        )

    def add(self, direction: str, numbers: np.ndarray, vectors: np.ndarray) -> None:
        """Add the vectors of words, (..., B, T, P), with the numbers of their sentences, (B, T)."""
        numbers = numbers.ravel()
        vectors = vectors.reshape(*vectors.shape[:-3], len(numbers), -1)  # ..., B T, P
        firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
        bounds = pairwise([*firsts.tolist(), len(numbers)])
        for number, (first, stop) in zip(numbers[firsts].tolist(), bounds, strict=True):
            if number < 0:  # marks, and places without a token
                continue
            pooled = self._running[number][..., self._selection.features[direction]]
            part = self._join.reduce(vectors[..., first:stop, :], axis=-2, dtype=np.float64)
            self._join(pooled, part, out=pooled)

    def of(self, k: int) -> np.ndarray:
        """Return the vector of a sentence; without words, zeros."""
        vectors = self._running.pop(k, np.zeros(self._selection.shape))
        if self._selection.pool == "mean":
            vectors = vectors / max(self._n_words[k], 1)
        vectors = vectors.astype(np.float32)
        return vectors / (np.linalg.norm(vectors) or 1) if self._selection.normalize else vectors
