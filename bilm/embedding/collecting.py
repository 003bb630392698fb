"""Runs a biLM over sentences, selects its layers, and collects or pools the vectors of words."""

import math
import operator
from collections.abc import Callable, Generator, Sequence

import numpy as np

from bilm.embedding.forms import POOLS
from bilm.errors import OptionsError, require_one_of
from bilm.inference.backend import Backend
from bilm.inference.packing import in_reading_order, pack, run_windows
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
        or (layers, D), and the number of their features, `n_features`; `directions` of the model,
        whose features are side by side.
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
        self.directions = options.directions
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
        dim = len(self.directions) * options.lstm.projection_dim
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
    sentences: list[np.ndarray],
    selection: Selection,
    batch_tokens: int,
) -> Generator[tuple[int, np.ndarray], None, None]:
    """Yield the number and the collected vectors of each sentence when its last step is computed.

    Args:
        table: token vectors, float32 (U, P).
        sentences: words with their marks, rows of the table, integer (T + 2,).
        batch_tokens: tokens that are computed at a time.
    """
    # The steps of each sentence in a grid. A direction stops at the last word that it reads,
    # because no result depends on the mark after it.
    lengths = np.array([len(rows) - 1 for rows in sentences])
    packing = pack(lengths)
    stops = packing.starts + lengths
    places = {}
    for direction in selection.directions:
        rows_read = (in_reading_order(rows, direction)[:-1] for rows in sentences)
        places[direction] = packing.grid(rows_read)

    waiting = sorted(range(len(sentences)), key=packing.starts.__getitem__, reverse=True)
    running: dict[int, Collector] = {}
    for steps, layers in run_windows(backend, packing, table, places, batch_tokens):
        selected = {d: selection.select(np.asarray(x)) for d, x in layers.items()}

        # The sentences that start in this window.
        while waiting and packing.starts[waiting[-1]] < steps.stop:
            k = waiting.pop()
            running[k] = Collector(selection, int(lengths[k]) - 1)

        # The words of each sentence in it, whose first step reads the begin mark.
        for k, collector in list(running.items()):
            first = int(packing.starts[k]) + 1
            start = max(steps.start, first)
            stop = min(steps.stop, int(stops[k]))
            if start < stop:
                in_window = slice(start - steps.start, stop - steps.start)
                vectors = {d: x[..., packing.rows[k], in_window, :] for d, x in selected.items()}
                collector.add(slice(start - first, stop - first), vectors)
            if stops[k] <= steps.stop:
                yield k, running.pop(k).result()


class Collector:
    """Collects or pools the vectors of a sentence of `n_words` words, some words at a time."""

    def __init__(self, selection: Selection, n_words: int):
        self._selection = selection
        self._n_words = n_words
        self._vectors: np.ndarray
        *layers, dim = selection.shape
        if selection.pool == "none":
            self._vectors = np.empty((*layers, n_words, dim), np.float32)
        elif selection.pool == "mean":
            self._vectors = np.zeros(selection.shape)
        else:
            start = -np.inf if n_words else 0
            self._vectors = np.full(selection.shape, start, np.float32)

        # A view of the features of each direction, with the words in its reading order.
        self._views: dict[str, np.ndarray] = {}
        width = dim // len(selection.directions)
        for i, direction in enumerate(selection.directions):
            view = self._vectors[..., i * width : (i + 1) * width]
            if selection.pool == "none" and direction == "backward":
                view = view[..., ::-1, :]
            self._views[direction] = view

    def add(self, words: slice, vectors: dict[str, np.ndarray]) -> None:
        """Add the vectors of words, (..., T, P) by direction, numbered from 0 in reading order."""
        for direction, view in self._views.items():
            if self._selection.pool == "none":
                view[..., words, :] = vectors[direction]
            elif self._selection.pool == "mean":
                view += vectors[direction].sum(axis=-2, dtype=np.float64)
            else:
                np.maximum(view, vectors[direction].max(axis=-2), out=view)

    def result(self) -> np.ndarray:
        """Return float32 (..., T, D), or (..., D) if pooled; without words, zeros."""
        vectors = self._vectors
        if self._selection.pool == "mean":
            vectors = (vectors / max(self._n_words, 1)).astype(np.float32)
        if self._selection.normalize:
            vectors = (vectors / (np.linalg.norm(vectors) or 1.0)).astype(np.float32)
        return vectors
