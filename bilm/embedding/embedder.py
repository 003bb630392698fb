"""Sentences -> vectors as NumPy arrays; equal sentences have equal vectors.

`ElmoEmbedder` looks up words in a `TokenCache` and packs sentences end to end into rows;
`PackedRunner` runs the biLM over the rows, a window of steps at a time; a `Collector` per sentence
collects or pools the vectors of its words.
"""

from __future__ import annotations

import heapq
import math
import operator
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bilm.data.signs import TextSigns
from bilm.data.tokenization import check_batch, checked_sentence
from bilm.embedding.choices import POOLS
from bilm.errors import BilmError, OptionsError
from bilm.inference.backend import Backend, open_backend
from bilm.inference.token_cache import TokenCache
from bilm.inference.words import WordVectors
from bilm.storage.stored_model import StoredModel, open_model

WINDOW_BATCHES = 8  # batches of tokens that are read ahead and packed together
WINDOW_TOKENS = 1 << 18  # maximum number of tokens read ahead if sentences are long
WINDOW_BYTES = 1 << 28  # maximum size in bytes of the vectors of the tokens that are read ahead
GATE_BYTES = 1 << 29  # maximum size in bytes of the input's part of the gates in a window of steps
MAX_ROWS = 192  # more rows hardly speed up products, and their steps no longer fit the cache


Layers = str | Sequence[int]
T = TypeVar("T")


class ElmoEmbedder:
    """A stored biLM that embeds sentences: words in, NumPy arrays out.

    A sentence is a list of words, or a string, which is split at blanks. The word `""` is padding:
    it has the vector zero and is not read. The vectors of a sentence do not depend on other
    sentences: each one starts with zero state. `<S>` and `</S>` are read as marks of a sentence.
    Threads may share an embedder. A pickle contains the paths of the model's files, which are
    loaded again, also in processes that multiprocessing spawns. In a forked process TensorFlow
    would hang; embedders raise BilmError there. If the sentences look untokenized, one warning is
    logged.

    Args:
        options_file: `options.json`, or a model: see `bilm.storage.stored_model.open_model`.
        weight_file: HDF5 file with the weights, if `options_file` is `options.json`.
        vocab_file: one word per line, for a model that reads words instead of characters; None for
            `vocab.txt` beside the options.
        cache_size: number of recently used words whose context-free vectors are cached, with 4 P
            bytes each (P = 512: 205 MB for 100,000 words); 0 disables the cache.
        batch_tokens: tokens that are computed at a time, with marks. It bounds memory and does not
            change results.
        precision: dtype of matrix-multiplication inputs: `bfloat16` is faster on processors that
            support it, and changes vectors by about 0.5 %. `int8` stores the weights of LSTMs,
            highway layers and projections in eight bits and computes with ONNX Runtime on the CPU.
        backend: `keras`, or `numpy`, which computes in float32 without importing Keras, except
            models that read words: it starts sooner, but computes more slowly.

    The argument `layers` of the methods selects the float32 result of a sentence. `"all"`: (layers
    + 1, T, 2 P), where layer 0 contains the token vector twice. Indices such as `[0, 2]` or
    `"0,2"`: (2, T, 2 P). `"top"`, `"average"` or `"sum"`: (T, 2 P). A forward-only model has P
    instead of 2 P features.
    Attributes: `n_layers`, including layer 0; `dim`, the number of features.
    Raises: OptionsError, WeightsError, DataError; ValueError for an unknown precision or backend;
        MissingExtraError for `int8` without the packages of the extra `onnx`.

    Example:
        embedder = bilm.ElmoEmbedder("options.json", "weights.hdf5")
        vectors = embedder.embed_sentence(["The", "bank", "closed", "."])  # 3, 4, 2 P
    """

    # id of the process that created the first embedder; forked processes inherit it
    _process: int | None = None

    def __init__(
        self,
        options_file: str | Path | StoredModel,
        weight_file: str | Path | None = None,
        vocab_file: str | Path | None = None,
        cache_size: int = 100_000,
        batch_tokens: int = 2048,
        precision: str = "float32",
        backend: str = "keras",
    ):
        ElmoEmbedder._process = ElmoEmbedder._process or os.getpid()
        self._check_process()
        self.stored = open_model(options_file, weight_file)
        model = open_backend(self.stored, backend, precision)
        self.options, self.batch_tokens = model.options, batch_tokens
        self.vocab_file = self.stored.vocabulary_file(vocab_file)
        self.stored.check_words(self.vocab_file)
        self._settings = self.vocab_file, cache_size, batch_tokens, precision, backend
        self._encode = WordVectors(model, self.vocab_file)
        self._marks, self._cache = self._encode.marks, TokenCache(cache_size, self._encode)
        self._runner = PackedRunner(model, batch_tokens)
        lstm = self.options.lstm
        self.n_layers = lstm.n_layers + 1
        self.dim = len(self.options.directions) * lstm.projection_dim
        self.signs = TextSigns("sentences to embed")

    def __reduce__(self):
        return type(self), (self.stored, None, *self._settings)

    def embed_sentence(self, tokens: Sequence[str], layers: Layers = "all") -> np.ndarray:
        """Embed one sentence; an empty sentence has T = 0. Raises: DataError."""
        return self.embed_batch([tokens], layers)[0]

    def embed_batch(
        self, sentences: Iterable[Sequence[str]], layers: Layers = "all"
    ) -> list[np.ndarray]:
        """Embed sentences and return all results at once. Raises: DataError."""
        return list(self.embed_sentences(sentences, layers))

    def embed_sentences(
        self,
        sentences: Iterable[Sequence[str]],
        layers: Layers = "all",
        pool: str = "none",
        normalize: bool = False,
    ) -> Iterator[np.ndarray]:
        """Embed a stream of sentences and yield their vectors in order, in bounded memory.

        About `WINDOW_BATCHES * batch_tokens` tokens are read ahead. `pool` and `normalize` are
        arguments of `sentence_vectors`; the pool `none` gives each word's vectors.

        Raises: DataError, OptionsError.
        """
        selection = self.selection(layers, pool, normalize)
        groups = self._groups(sentences, selection)
        in_order = (dict(self._embed(group, selection)) for group in groups)
        return (results.pop(k) for results in in_order for k in range(len(results)))

    def embed_as_completed(
        self,
        sentences: Iterable[Sequence[str]],
        layers: Layers = "all",
        pool: str = "none",
        normalize: bool = False,
    ) -> Generator[tuple[int, list[str], np.ndarray], None, None]:
        """Embed a stream as `embed_sentences` does, and yield each sentence as soon as it has been
        computed: its number, from 0, its words and its vectors. Other sentences are computed while
        the caller processes it."""
        selection, first = self.selection(layers, pool, normalize), 0
        for group in self._groups(sentences, selection):
            with closing(self._embed(group, selection)) as embedded:
                for k, vectors in embedded:
                    yield first + k, group[k], vectors
            first += len(group)

    def sentence_vectors(
        self,
        sentences: Iterable[Sequence[str]],
        layers: Layers = "average",
        normalize: bool = False,
        pool: str = "mean",
    ) -> np.ndarray:
        """Return one vector per sentence, float32 (n, 2 P): the mean over its words of the layers'
        average. Several `layers` give (n, layers, 2 P). An empty sentence has zeros. Memory does
        not grow with the length of a sentence.

        Args:
            sentences, layers: see the class.
            normalize: divide the result of a sentence by its Euclidean norm, as simple_elmo's
                `get_elmo_vector_average` does.
            pool: `mean`, or `max` for the largest value of each feature.
        Raises: DataError, OptionsError.
        """
        if pool == "none":
            raise OptionsError("pool is 'none', expected mean or max: one vector per sentence")
        vectors = list(self.embed_sentences(sentences, layers, pool, normalize))
        return np.array(vectors, np.float32).reshape(-1, *self.selection(layers).shape)

    def selection(
        self, layers: Layers = "all", pool: str = "none", normalize: bool = False
    ) -> Selection:
        """Return the `Selection` of these arguments for this model. Raises: OptionsError."""
        return Selection(layers, pool, normalize, self.n_layers, self.dim)

    def warm_up(
        self, sentences: Iterable[Sequence[str]] = (), layers: Layers = "all", pool: str = "none"
    ) -> None:
        """Compile the functions that embed one sentence and several, which otherwise happens at the
        first sentences, and cache the words of sentences. Vectors do not change.

        Args:
            sentences: sentences whose words are cached.
            layers, pool: see `embed_as_completed`; they limit how many sentences are read ahead.
        Raises: DataError, OptionsError.
        """
        selection = self.selection(layers, pool)
        for group in self._groups(sentences, selection):
            self._look_up(group)
        # The marks are encoded outside the cache: its contents and order remain those of embedding.
        self._check_process()
        table = self._encode(self._marks)
        marks = np.arange(len(table))
        for sentences_of_marks in ([marks], [marks, marks]):
            for _ in self._runner(table, sentences_of_marks, selection):
                pass

    def clear_cache(self) -> None:
        """Remove all words from the cache."""
        self._cache.clear()

    def _groups(
        self, sentences: Iterable[Sequence[str]], selection: Selection
    ) -> Iterator[list[list[str]]]:
        """Yield sentences in groups that are packed together: about `WINDOW_BATCHES` batches, or as
        many tokens as fill all rows with long sentences and whose vectors fit in memory."""
        check_batch(sentences)
        most = WINDOW_TOKENS
        if selection.pool == "none":
            most = min(WINDOW_BYTES // (4 * math.prod(selection.shape)), most)
        least, n_rows = WINDOW_BATCHES * self.batch_tokens, min(MAX_ROWS, self.batch_tokens)
        group: list[list[str]] = []
        n_tokens = longest = 0
        checked = (_words(words, f"sentence {i}") for i, words in enumerate(sentences))
        for words in self.signs.watch(checked, list):
            group.append(words)
            n_tokens += len(words) + 2
            longest = max(longest, len(words) + 2)
            if n_tokens >= max(least, min(n_rows * longest, most)):
                yield group
                group, n_tokens, longest = [], 0, 0
        if group:
            yield group

    def _look_up(self, group: list[list[str]]) -> tuple[dict[str, int], np.ndarray]:
        """Return the rows of words and marks in a table, and the table, float32 (U, P)."""
        self._check_process()
        words = [word for word in dict.fromkeys(chain(self._marks, *group)) if word]
        return {word: i for i, word in enumerate(words)}, self._cache(words)

    def _embed(
        self, group: list[list[str]], selection: Selection
    ) -> Generator[tuple[int, np.ndarray], None, None]:
        """Yield the number and the vectors of each sentence of a group when they are computed."""
        places, table = self._look_up(group)
        begin, end = self._marks
        sentences = {
            k: np.array([places[w] for w in (begin, *words, end) if w])
            for k, words in enumerate(group)
            if any(words)
        }
        numbers = list(sentences)
        with closing(self._runner(table, list(sentences.values()), selection)) as embedded:
            for i, vectors in embedded:
                yield numbers[i], _with_padding(vectors, group[numbers[i]], selection)
        for k in (k for k in range(len(group)) if k not in sentences):
            yield k, _with_padding(Collector(selection, 0).result(), group[k], selection)

    def _check_process(self) -> None:
        """Raise BilmError in a forked process, which lacks TensorFlow's threads."""
        if os.getpid() != self._process:
            raise BilmError(
                f"process {os.getpid()} was forked from process {self._process}, which had made an "
                "embedder; TensorFlow does not work after a fork: start processes with "
                "multiprocessing.get_context('spawn')"
            )


def _words(sentence: str | Iterable[str], name: str) -> list[str]:
    """Return the words of a sentence; a string is split at blanks. Raises: DataError."""
    return sentence.split() if isinstance(sentence, str) else checked_sentence(sentence, name)


def _with_padding(vectors: np.ndarray, words: list[str], selection: Selection) -> np.ndarray:
    """Insert zeros for the words that are padding into the vectors of words (..., T, D)."""
    if selection.pool != "none" or vectors.shape[-2] == len(words):
        return vectors
    found: np.ndarray = np.zeros((*vectors.shape[:-2], len(words), vectors.shape[-1]), np.float32)
    found[..., [k for k, word in enumerate(words) if word], :] = vectors
    return found


# --- selecting layers and collecting the vectors of a sentence ---


REDUCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "top": lambda array: array[-1],
    "average": lambda array: array.mean(axis=0),
    "sum": lambda array: array.sum(axis=0),
}


class Selection:
    """The layers to select from a model's arrays, and how to pool a sentence's words.

    Args:
        layers, pool, normalize: see `ElmoEmbedder.embed_sentences`.
        n_layers, dim: numbers of layers and features of the arrays, (n_layers, ..., T, dim).
    Attributes: `pool`, `normalize`; `numbers`, of the selected layers, empty for a name such as
        "top"; `shape`, of the vectors of a word or a pooled sentence: (D,), or (layers, D).
    Raises: OptionsError for layers that do not exist, an unknown pool, or `normalize` without
        pooling.
    """

    def __init__(self, layers: Layers, pool: str, normalize: bool, n_layers: int, dim: int):
        if pool not in POOLS:
            raise OptionsError(f"pool is {pool!r}, expected one of {', '.join(POOLS)}")
        if normalize and pool == "none":
            raise OptionsError(
                "normalize requires one vector per sentence: set pool to mean or max"
            )
        self.pool, self.normalize = pool, normalize
        self.numbers: list[int] = []
        self.shape: tuple[int, ...] = (dim,)
        self._reduce = REDUCTIONS.get(layers) if isinstance(layers, str) else None
        if self._reduce is not None:
            return
        self._is_all = isinstance(layers, str) and layers == "all"
        self.numbers = list(range(n_layers)) if self._is_all else _layer_numbers(layers)
        if not self.numbers or not all(0 <= i < n_layers for i in self.numbers):
            raise OptionsError(
                f"layers is {layers!r}, expected all, {', '.join(REDUCTIONS)} or a list of "
                f"numbers from 0 to {n_layers - 1}"
            )
        self.shape = (len(self.numbers), dim)

    def select(self, array: np.ndarray) -> np.ndarray:
        """Select the layers from an array (n_layers, ..., T, D)."""
        if self._reduce is not None:
            return self._reduce(array)
        return array if self._is_all else array[self.numbers]


def _layer_numbers(layers: Layers) -> list[int]:
    """Return the numbers in `layers`; an empty list if it contains anything else."""
    try:
        parts = layers.split(",") if isinstance(layers, str) else map(operator.index, layers)
        return list(map(int, parts))
    except (TypeError, ValueError):
        return []


class Collector:
    """Collects or pools the vectors of a sentence of `n_words` words from windows of steps."""

    def __init__(self, selection: Selection, n_words: int):
        self._pool, self._normalize = selection.pool, selection.normalize
        self._n_words = n_words
        *before, dim = selection.shape
        if self._pool == "none":
            self._vectors: np.ndarray = np.empty((*before, n_words, dim), np.float32)
        elif self._pool == "mean":
            self._vectors = np.zeros(selection.shape)
        else:
            start = -np.inf if n_words else 0
            self._vectors = np.full(selection.shape, start, np.float32)

    def add(self, found: dict[str, np.ndarray], at: int) -> None:
        """Add the sentence's part of a window, (..., T, P) by direction. `at` is the sentence's
        step at the start of the window, counted from the begin mark; below 0 if it starts later."""
        n_steps, dim = next(iter(found.values())).shape[-2:]
        first, stop = max(at, 1), min(at + n_steps, self._n_words + 1)
        if first >= stop:
            return
        for i, (direction, vectors) in enumerate(found.items()):
            vectors = vectors[..., first - at : stop - at, :]
            features = slice(i * dim, (i + 1) * dim)
            if self._pool == "mean":
                self._vectors[..., features] += vectors.sum(axis=-2, dtype=np.float64)
            elif self._pool == "max":
                largest = self._vectors[..., features]
                np.maximum(largest, vectors.max(axis=-2), out=largest)
            elif direction == "backward":  # its first step reads the last word
                words = slice(self._n_words - stop + 1, self._n_words - first + 1)
                self._vectors[..., words, features] = vectors[..., ::-1, :]
            else:
                self._vectors[..., first - 1 : stop - 1, features] = vectors

    def result(self) -> np.ndarray:
        """Return float32 (..., T, D), or (..., D) if pooled; without words, zeros."""
        vectors = self._vectors
        if self._pool == "mean":
            vectors = (vectors / max(self._n_words, 1)).astype(np.float32)
        if self._normalize:
            vectors = (vectors / (np.linalg.norm(vectors) or 1.0)).astype(np.float32)
        return vectors


# --- running the biLM over packed sentences ---


class Packing(NamedTuple):
    """The places of sentences in a grid of rows and steps: `rows`, `starts`, integer (n,)."""

    rows: np.ndarray
    starts: np.ndarray
    n_rows: int
    n_steps: int


def pack(lengths: np.ndarray, max_rows: int = MAX_ROWS) -> Packing:
    """Assign sentences of these lengths, integer (n,), to rows, the longest first, each to the row
    that ends earliest.

    The number of rows is the total length divided by the longest length, at most `max_rows`; above
    8, it is rounded up to a multiple of 8. The ends of rows differ by at most the longest length
    (R. L. Graham 1969, Bounds on multiprocessing timing anomalies).
    """
    n_rows = int(np.clip(lengths.sum() // lengths.max(), 1, max_rows))
    n_rows = min(n_rows + -n_rows % 8, max_rows, len(lengths)) if n_rows > 8 else n_rows
    ends = [(0, row) for row in range(n_rows)]
    rows: np.ndarray = np.empty(len(lengths), np.int64)
    starts: np.ndarray = np.empty(len(lengths), np.int64)
    for i in np.argsort(-lengths, kind="stable"):
        starts[i], rows[i] = ends[0]
        heapq.heapreplace(ends, (int(starts[i] + lengths[i]), int(rows[i])))
    return Packing(rows, starts, n_rows, max(ends)[0])


def ahead(values: Iterator[T]) -> Generator[T, None, None]:
    """Yield the values of an iterator, computing the next one in a thread while the caller uses the
    last. At most one value is waiting. Closing waits for the value that is being computed."""

    def following() -> list[T]:
        return list(islice(values, 1))

    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        future = thread.submit(following)
        while found := future.result():
            future = thread.submit(following)
            yield found[0]


class PackedRunner:
    """Runs the stacks of a biLM over packed sentences, each from zero state, in windows of at most
    `batch_tokens` tokens."""

    def __init__(self, backend: Backend, batch_tokens: int):
        self._backend, self._directions = backend, backend.options.directions
        self._batch_tokens = batch_tokens
        gate_bytes = 16 * backend.options.lstm.dim * len(self._directions)  # per token
        self._window_tokens = min(batch_tokens, GATE_BYTES // gate_bytes)

    def __call__(
        self, table: np.ndarray, sentences: list[np.ndarray], selection: Selection
    ) -> Generator[tuple[int, np.ndarray], None, None]:
        """Yield the number and the collected vectors of each sentence when its last step is
        computed. A direction stops at the last word that it reads, because no result depends on
        the mark after it.

        Args:
            table: token vectors, float32 (U, P).
            sentences: words with their marks, rows of the table, integer (T + 2,).
            selection: what to select from the layers.
        """
        if not sentences:
            return
        lengths = np.array([len(rows) - 1 for rows in sentences])
        packing = pack(lengths)
        places, fresh = self._lay_out(sentences, packing)
        waiting = sorted(range(len(sentences)), key=packing.starts.__getitem__, reverse=True)
        running: dict[int, Collector] = {}
        windows = self._windows(table, places, fresh)
        if fresh.size > self._batch_tokens and self._backend.runs_ahead:
            # The caller collects and writes while the next steps are computed.
            windows = ahead(windows)
        with closing(windows):
            for steps, found in windows:
                selected = {d: selection.select(np.asarray(x)) for d, x in found.items()}
                while waiting and packing.starts[waiting[-1]] < steps.stop:
                    k = waiting.pop()
                    running[k] = Collector(selection, int(lengths[k]) - 1)
                for k, collector in list(running.items()):
                    # The sentence's step at the window's start.
                    at = steps.start - int(packing.starts[k])
                    own = {d: s[..., packing.rows[k], :, :] for d, s in selected.items()}
                    collector.add(own, at)
                    if packing.starts[k] + lengths[k] <= steps.stop:
                        yield k, running.pop(k).result()

    def _windows(
        self, table: np.ndarray, places: dict[str, np.ndarray], fresh: np.ndarray
    ) -> Generator[tuple[slice, dict[str, Any]], None, None]:
        """Yield the steps of each window and its layers by direction."""
        n_rows, n_all = fresh.shape
        n_steps = max(self._window_tokens // n_rows, 1)
        run = self._backend.begin(table, n_rows)
        for start in range(0, n_all, n_steps):
            steps = slice(start, min(start + n_steps, n_all))
            yield steps, run({d: p[:, steps] for d, p in places.items()}, fresh[:, steps])

    def _lay_out(
        self, sentences: list[np.ndarray], packing: Packing
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the places and the starts of `Backend.begin` for all steps."""
        shape = packing.n_rows, packing.n_steps
        places: dict[str, np.ndarray] = {d: np.zeros(shape, np.int32) for d in self._directions}
        fresh: np.ndarray = np.zeros(shape, bool)
        for rows, row, start in zip(sentences, packing.rows, packing.starts, strict=True):
            fresh[row, start] = True
            for direction in self._directions:
                in_order = rows[:0:-1] if direction == "backward" else rows[:-1]
                places[direction][row, start : start + len(in_order)] = in_order
        return places, fresh
