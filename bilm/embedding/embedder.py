"""Sentences -> vectors as NumPy arrays; equal sentences have equal vectors."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from bilm.data.tokenization import TokenizationCheck, checked_sentence
from bilm.embedding.collecting import (
    COLLECTORS,
    EachWord,
    Layers,
    check_pool,
    layer_selector,
    unit_length,
)
from bilm.embedding.packed_runner import MAX_ROWS, PackedRunner
from bilm.embedding.token_cache import TokenCache, WordVectors
from bilm.errors import BilmError, DataError, OptionsError
from bilm.storage.stored_model import StoredModel, open_model

WINDOW_BATCHES = 8  # batches of tokens that are read ahead and packed together
WINDOW_TOKENS = 1 << 18  # most tokens that are read ahead if sentences are long
WINDOW_BYTES = 1 << 28  # most bytes of vectors of the tokens that are read ahead


class ElmoEmbedder:
    """A stored biLM that embeds sentences: lists of words in, NumPy arrays out.

    The vectors of a sentence do not depend on other sentences: each one starts with zero state. The
    words `<S>` and `</S>` are read as the marks of a sentence. Threads may share an embedder. A
    pickle contains the paths of the model's files, which are loaded again, also in processes that
    multiprocessing spawns. In a forked process TensorFlow would hang; embedders raise BilmError
    there. If the text of all sentences so far is not tokenized, one warning is logged.

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
            support it, and changes vectors by less than 1 %.

    The argument `layers` of the methods selects: `"all"`, float32 (layers + 1, T, 2 P) per
    sentence, with the token's vector twice as layer 0; indices such as `[0, 2]` (or `"0,2"`),
    (2, T, 2 P); `"top"`, `"average"` or `"sum"`, (T, 2 P). A forward-only model has P instead of
    2 P features.
    Attributes: `n_layers`, including layer 0; `dim`, the number of features.
    Raises: OptionsError, WeightsError, DataError; ValueError for sizes that are too small.

    Example:
        embedder = bilm.ElmoEmbedder("options.json", "weights.hdf5")
        vectors = embedder.embed_sentence(["The", "bank", "closed", "."])  # 3, 4, 2 P
    """

    _process: int | None = None  # that made the first embedder; inherited by forked processes

    def __init__(
        self,
        options_file: str | Path | StoredModel,
        weight_file: str | Path | None = None,
        vocab_file: str | Path | None = None,
        cache_size: int = 100_000,
        batch_tokens: int = 2048,
        precision: str = "float32",
    ):
        ElmoEmbedder._process = ElmoEmbedder._process or os.getpid()
        self._check_process()
        if cache_size < 0 or batch_tokens < 1:
            given = f"cache_size is {cache_size} and batch_tokens {batch_tokens}"
            raise ValueError(f"{given}, expected at least 0 and 1")
        self.stored = open_model(options_file, weight_file)
        self.model = self.stored.build(precision, frozen=True)
        self.options, self.batch_tokens = self.model.options, batch_tokens
        self.vocab_file = self.stored.vocabulary_file(vocab_file)
        self._settings = self.vocab_file, cache_size, batch_tokens, precision
        encode = WordVectors(self.model, self.vocab_file)
        self._marks, self._cache = encode.marks, TokenCache(cache_size, encode)
        self._runner = PackedRunner(self.model, batch_tokens)
        self.n_layers, self.dim = self._runner.n_layers, self._runner.dim
        self.tokenization = TokenizationCheck("sentences to embed")

    def __reduce__(self):
        return _unpickled, (type(self), self.stored, None, *self._settings)

    def __getattr__(self, name: str) -> Any:  # of an unpickled embedder in a fork
        self._check_process()
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def embed_sentence(self, tokens: Sequence[str], layers: Layers = "all") -> np.ndarray:
        """Embed one sentence; an empty sentence has T = 0.

        Raises: DataError if it is not a list of words.
        """
        return self.embed_batch([tokens], layers)[0]

    def embed_batch(
        self, sentences: Iterable[Sequence[str]], layers: Layers = "all"
    ) -> list[np.ndarray]:
        """Embed sentences and return all results at once. Raises: DataError."""
        return list(self.embed_sentences(sentences, layers))

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], layers: Layers = "all"
    ) -> Iterator[np.ndarray]:
        """Embed a stream of sentences and yield their vectors in order, in bounded memory.

        About `WINDOW_BATCHES * batch_tokens` tokens are read ahead.

        Raises: DataError if a sentence is not a list of words.
        """
        select = layer_selector(layers, self.n_layers)
        return self._in_order(sentences, select, EachWord)

    def embed_as_completed(
        self, sentences: Iterable[Sequence[str]], layers: Layers = "all", pool: str = "none"
    ) -> Generator[tuple[int, list[str], np.ndarray], None, None]:
        """Embed a stream of sentences and yield each as soon as it has been computed.

        Other sentences are computed while the caller processes a result. `pool` is the argument of
        `sentence_vectors`, or `none` for each word's vectors.

        Yields: number of the sentence, counted from 0, its words and its vectors.
        Raises: DataError if a sentence is not a list of words; OptionsError.
        """
        select = layer_selector(layers, self.n_layers)
        check_pool(pool, normalize=False)

        def numbered() -> Generator[tuple[int, list[str], np.ndarray], None, None]:
            first = 0
            for group in self._groups(sentences, self._limit(select, COLLECTORS[pool])):
                with closing(self._embed(group, select, COLLECTORS[pool])) as embedded:
                    for k, vectors in embedded:
                        yield first + k, group[k], vectors
                first += len(group)

        return numbered()

    def sentence_vectors(
        self,
        sentences: Iterable[Sequence[str]],
        layers: Layers = "average",
        normalize: bool = False,
        pool: str = "mean",
    ) -> np.ndarray:
        """Return one vector per sentence: the mean over its words of the layers' average.

        Other `layers` are pooled over words in the same way; several layers give (n, layers, 2 P).
        An empty sentence has zeros. Memory does not grow with the length of a sentence.

        Args:
            sentences: lists of words.
            layers: see the class.
            normalize: divide the result of a sentence by its Euclidean norm, as simple_elmo's
                `get_elmo_vector_average` does.
            pool: `mean`, or `max` for the largest value of each feature.
        Returns: float32 (n, 2 P).
        Raises: DataError if a sentence is not a list of words; OptionsError.
        """
        select = layer_selector(layers, self.n_layers)
        check_pool(pool, normalize)
        if pool == "none":
            raise OptionsError("pool is 'none', expected mean or max: one vector per sentence")
        vectors = list(self._in_order(sentences, select, COLLECTORS[pool]))
        if normalize:
            vectors = [unit_length(vector) for vector in vectors]
        *before, _, dim = select(self._empty()).shape
        return np.array(vectors, np.float32).reshape(-1, *before, dim)

    def warm_up(
        self, sentences: Iterable[Sequence[str]], layers: Layers = "all", pool: str = "none"
    ) -> None:
        """Fill the cache with the words of sentences, in the same way as embedding them."""
        limit = self._limit(layer_selector(layers, self.n_layers), COLLECTORS[pool])
        for group in self._groups(sentences, limit):
            self._look_up(group)

    def clear_cache(self) -> None:
        """Remove all words from the cache."""
        self._check_process()
        self._cache.clear()

    def _in_order(
        self, sentences: Iterable[Sequence[str]], select: Callable, collector: type
    ) -> Iterator[np.ndarray]:
        """Embed a stream of sentences and yield their collected vectors in order."""

        def in_order(group):
            results = dict(self._embed(group, select, collector))
            return (results.pop(k) for k in range(len(group)))

        groups = self._groups(sentences, self._limit(select, collector))
        return chain.from_iterable(map(in_order, groups))

    def _limit(self, select: Callable, collector: type) -> int:
        """Return how many tokens may be read ahead, so that their vectors fit in memory."""
        if collector is not EachWord:
            return WINDOW_TOKENS
        *before, _, dim = select(self._empty()).shape
        return min(WINDOW_BYTES // (4 * math.prod(before) * dim), WINDOW_TOKENS)

    def _groups(self, sentences: Iterable[Sequence[str]], limit: int) -> Iterator[list[list[str]]]:
        """Yield sentences in groups that are packed together.

        A group has about as many tokens as `WINDOW_BATCHES` batches. If sentences are long, it has
        as many tokens as fill all rows, but no more than `limit`.
        """
        if isinstance(sentences, Set | Mapping):
            raise DataError(f"sentences are a {type(sentences).__name__}, which has no order")
        least, n_rows = WINDOW_BATCHES * self.batch_tokens, min(MAX_ROWS, self.batch_tokens)
        group: list[list[str]] = []
        n_tokens = longest = 0
        checked = (checked_sentence(words, f"sentence {i}") for i, words in enumerate(sentences))
        for words in self.tokenization.watch(checked):
            group.append(words)
            n_tokens += len(group[-1]) + 2
            longest = max(longest, len(group[-1]) + 2)
            if n_tokens >= max(least, min(n_rows * longest, limit)):
                yield group
                group, n_tokens, longest = [], 0, 0
        if group:
            yield group

    def _look_up(self, group: list[list[str]]) -> tuple[dict[str, int], np.ndarray]:
        """Return each word's row of a table, marks included, and the table, float32 (U, P)."""
        self._check_process()
        words = list(dict.fromkeys(chain(self._marks, *group)))
        return {word: i for i, word in enumerate(words)}, self._cache(words)

    def _embed(
        self, group: list[list[str]], select: Callable, collector: type
    ) -> Generator[tuple[int, np.ndarray], None, None]:
        """Yield the number and the collected vectors of each sentence of a group, when computed."""
        places, table = self._look_up(group)
        filled, (begin, end) = [k for k, words in enumerate(group) if words], self._marks
        collect = partial(collector, select(self._empty()).shape)
        if filled:
            sentences = [np.array([places[w] for w in (begin, *group[k], end)]) for k in filled]
            with closing(self._runner(table, sentences, select, collect)) as embedded:
                for k, vectors in embedded:
                    yield filled[k], vectors
                    self._check_process()
        yield from ((k, collect(0).result()) for k, words in enumerate(group) if not words)

    def _check_process(self) -> None:
        """Raise BilmError in a forked process, which lacks TensorFlow's threads."""
        if os.getpid() != self._process:
            raise BilmError(
                f"process {os.getpid()} was forked from process {self._process}, which had made an "
                "embedder; TensorFlow does not work after a fork: start processes with "
                "multiprocessing.get_context('spawn')"
            )

    def _empty(self) -> np.ndarray:
        return np.empty((self.n_layers, 0, self.dim), np.float32)


def _unpickled(cls: type[ElmoEmbedder], *arguments: Any) -> ElmoEmbedder:
    """Load a pickled embedder. In a forked process its first use raises the error: an error raised
    here would kill a worker of `multiprocessing.Pool`, and its caller would wait forever."""
    is_forked = cls._process not in (None, os.getpid())
    return cls.__new__(cls) if is_forked else cls(*arguments)
