"""Sentences -> vectors, as NumPy arrays: the same sentence always gets the same ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from bilm.data.sentences import checked_sentence
from bilm.embedding.collecting import (
    COLLECTORS,
    EachWord,
    Layers,
    check_pool,
    layer_selector,
    unit_length,
)
from bilm.embedding.packed_runner import PackedRunner
from bilm.embedding.packing import MAX_ROWS
from bilm.embedding.token_cache import TokenCache, WordVectors, find_vocabulary
from bilm.errors import BilmError, OptionsError
from bilm.files import expanded
from bilm.storage.load import load_bilm
from bilm.storage.locate import resolve

WINDOW_BATCHES = 8  # batches among which sentences of ordinary length are dealt out to rows
WINDOW_TOKENS = 1 << 18  # the most tokens that are read ahead to fill the rows, where
WINDOW_BYTES = 1 << 28  # their vectors fit into so many bytes


class ElmoEmbedder:
    """A stored biLM that embeds sentences: lists of words in, NumPy arrays out.

    Every sentence starts afresh, so its vectors depend neither on its neighbours nor on the order
    or the number of sentences. The words `<S>` and `</S>` stand for the marks of a sentence.
    Any number of threads may share an embedder. A pickle holds the paths of its files, which are
    loaded again, as in processes that multiprocessing spawns. In a forked process the backend
    would hang, so that embedders raise BilmError there.

    Args:
        options_file: `options.json`; or what stands for both files, see `bilm.storage.locate`.
        weight_file: the HDF5 file with the weights, where `options_file` names one file.
        vocab_file: one word a line, for a model that reads words; others spell them. None for
            `vocab.txt` beside the options.
        cache_size: of how many words the context-free vectors are kept, those used last; 0 for
            none. A word takes 4 P bytes, at P = 512 100,000 of them 205 MB.
        batch_tokens: tokens that are run over at a time, marks included. It bounds memory and
            changes no result.
        precision: of the operands of products: `bfloat16` is faster where the processor has it,
            and changes vectors by less than 1 %.

    Methods take `layers`: `"all"` gives each sentence as float32 (layers + 1, T, 2 P), layer 0
    being the token's vector twice; indices such as `[0, 2]` (or `"0,2"`) give (2, T, 2 P), and
    `"top"`, `"average"` and `"sum"` (T, 2 P). P stands for 2 P in a forward-only model.
    Raises: OptionsError, WeightsError, DataError; ValueError for sizes that are too small.

    Example:
        embedder = bilm.ElmoEmbedder("options.json", "weights.hdf5")
        vectors = embedder.embed_sentence(["The", "bank", "closed", "."])  # 3, 4, 2 P
    """

    _process: int | None = None  # that made the first embedder; forked ones inherit it

    def __init__(
        self,
        options_file: str | Path,
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
        self.options_file, self.weight_file = map(
            Path.absolute, resolve(expanded(options_file), expanded(weight_file))
        )
        files = self.options_file, self.weight_file
        self.model = load_bilm(*files, precision=precision, frozen=True)
        self.options, self.batch_tokens = self.model.options, batch_tokens
        self.vocab_file = find_vocabulary(self.options, self.options_file, expanded(vocab_file))
        self._settings = self.vocab_file, cache_size, batch_tokens, precision
        encode = WordVectors(self.model, self.vocab_file)
        self._marks, self._cache = encode.marks, TokenCache(cache_size, encode)
        self._runner = PackedRunner(self.model, batch_tokens)
        self.n_layers, self.dim = self._runner.n_layers, self._runner.dim

    def __reduce__(self):
        return _unpickled, (type(self), self.options_file, self.weight_file, *self._settings)

    def __getattr__(self, name: str) -> Any:  # of what __init__ has not set, as in a forked process
        self._check_process()
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def embed_sentence(self, tokens: Sequence[str], layers: Layers = "all") -> np.ndarray:
        """Embed one sentence; an empty one has T = 0.

        Raises: DataError if it is not a list of words.
        """
        return self.embed_batch([tokens], layers)[0]

    def embed_batch(
        self, sentences: Iterable[Sequence[str]], layers: Layers = "all"
    ) -> list[np.ndarray]:
        """Embed any number of sentences; all results are held at once. Raises: DataError."""
        return list(self.embed_sentences(sentences, layers))

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], layers: Layers = "all"
    ) -> Iterator[np.ndarray]:
        """Embed a stream of sentences, giving results in its order, in bounded memory.

        About `WINDOW_BATCHES * batch_tokens` tokens are read ahead, to be packed into rows.

        Raises: DataError if a sentence is not a list of words.
        """
        select = layer_selector(layers, self.n_layers)
        return self._in_order(sentences, select, EachWord)

    def embed_as_completed(
        self, sentences: Iterable[Sequence[str]], layers: Layers = "all", pool: str = "none"
    ) -> Iterator[tuple[int, list[str], np.ndarray]]:
        """Embed a stream of sentences, giving each as soon as it is done.

        Of the sentences that are read ahead together, others are computed while the caller
        stores what it has. `pool` is that of `sentence_vectors`, or `none` for each word's vectors.

        Returns: of each sentence its number, counted from 0, its words and its vectors.
        Raises: DataError if a sentence is not a list of words; OptionsError.
        """
        select = layer_selector(layers, self.n_layers)
        check_pool(pool, normalize=False)

        def numbered():
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

        Other `layers` are pooled over words likewise, and those with an axis of layers give
        (n, layers, 2 P). An empty sentence gives zeros. Memory does not grow with the length of a
        sentence.

        Args:
            sentences: lists of words.
            layers: see the class.
            normalize: divide what a sentence gets by its Euclidean norm, as simple_elmo's
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
        shape = np.delete(select(self._empty()).shape, -2)
        return np.array(vectors, np.float32).reshape(-1, *shape)

    def warm_up(
        self, sentences: Iterable[Sequence[str]], layers: Layers = "all", pool: str = "none"
    ) -> None:
        """Take the words of sentences into the cache, as embedding the sentences would."""
        limit = self._limit(layer_selector(layers, self.n_layers), COLLECTORS[pool])
        for group in self._groups(sentences, limit):
            self._look_up(group)

    def clear_cache(self) -> None:
        """Forget the vectors of all words."""
        self._check_process()
        self._cache.clear()

    def _in_order(
        self, sentences: Iterable[Sequence[str]], select: Callable, collector: type
    ) -> Iterator[np.ndarray]:
        """Embed a stream of sentences and give what is collected of each, in its order."""

        def in_order(group):
            results = dict(self._embed(group, select, collector))
            return (results.pop(k) for k in range(len(group)))

        groups = self._groups(sentences, self._limit(select, collector))
        return chain.from_iterable(map(in_order, groups))

    def _limit(self, select: Callable, collector: type) -> int:
        """Return how many tokens may be read ahead: as many as memory allows for their vectors."""
        if collector is not EachWord:
            return WINDOW_TOKENS
        word_bytes = select(np.empty((self.n_layers, 1, self.dim), np.float32)).nbytes
        return min(WINDOW_BYTES // word_bytes, WINDOW_TOKENS)

    def _groups(self, sentences: Iterable[Sequence[str]], limit: int) -> Iterator[list[list[str]]]:
        """Yield sentences in groups that are packed together.

        A group has about as many tokens as `WINDOW_BATCHES` batches; as many as fill all rows, if
        sentences are longer; and no more than `limit` if that is above the first.
        """
        least, n_rows = WINDOW_BATCHES * self.batch_tokens, min(MAX_ROWS, self.batch_tokens)
        group, n_tokens, longest = [], 0, 0
        for number, words in enumerate(sentences):
            group.append(checked_sentence(words, f"sentence {number}"))
            n_tokens += len(group[-1]) + 2
            longest = max(longest, len(group[-1]) + 2)
            if n_tokens >= max(least, min(n_rows * longest, limit)):
                yield group
                group, n_tokens, longest = [], 0, 0
        if group:
            yield group

    def _look_up(self, group: list[list[str]]) -> tuple[dict[str, int], np.ndarray]:
        """Return the places of a group's words, marks included, in a table float32 (U, P)."""
        self._check_process()
        words = list(dict.fromkeys(chain(self._marks, *group)))
        return {word: i for i, word in enumerate(words)}, self._cache(words)

    def _embed(self, group: list[list[str]], select: Callable, collector: type) -> Any:
        """Yield the number of each sentence of a group and what is collected of it, when done."""
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
        """Raise BilmError in a forked process, which lacks the threads that compute."""
        if os.getpid() != self._process:
            raise BilmError(
                f"process {os.getpid()} was forked from process {self._process}, which had made an "
                "embedder; TensorFlow does not work after a fork: start processes with "
                "multiprocessing.get_context('spawn')"
            )

    def _empty(self) -> np.ndarray:
        return np.empty((self.n_layers, 0, self.dim), np.float32)


def _unpickled(cls: type, *arguments: Any) -> ElmoEmbedder:
    """Load a pickled embedder. In a forked process its first use raises the error: one raised
    here would kill a worker of `multiprocessing.Pool`, whose caller then waits for ever."""
    is_forked = cls._process not in (None, os.getpid())
    return cls.__new__(cls) if is_forked else cls(*arguments)
