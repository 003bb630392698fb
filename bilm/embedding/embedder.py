"""Sentences -> vectors as NumPy arrays. `ElmoEmbedder` reads sentences in groups and looks up their
words in a `TokenCache`; `collected` runs the biLM over a group and collects the vectors."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from bilm.data.profile import TextSigns
from bilm.data.tokenization import checked_sentences
from bilm.embedding.collecting import Layers, Selection, collected
from bilm.errors import OptionsError
from bilm.inference.backend import open_backend
from bilm.inference.packing import MAX_ROWS
from bilm.inference.words import TokenCache, WordVectors
from bilm.storage.stored_model import StoredModel, open_model

WINDOW_BATCHES = 8  # batches of tokens that are read ahead and packed together
WINDOW_TOKENS = 1 << 18  # maximum number of tokens read ahead if sentences are long
WINDOW_BYTES = 1 << 28  # maximum size in bytes of the vectors of the tokens that are read ahead


class ElmoEmbedder:
    """A stored biLM that embeds sentences: words in, NumPy arrays out.

    A sentence is a list of words, or a string, which is split at blanks. The word `""` is padding:
    it has the vector zero and is not read. The vectors of a sentence do not depend on other
    sentences: each one starts with zero state. `<S>` and `</S>` are read as marks of a sentence.
    Threads may share an embedder. A pickle contains the paths of the model's files, which are
    loaded again, also in processes that multiprocessing spawns. After a fork, an embedder of the
    parent raises BilmError, except with `numpy`, and a new one uses NumPy; see
    `bilm.support.process`. Warnings are logged for sentences that are not tokenized, or unlike the
    training text.

    Args:
        options_file: `options.json`, or a model: see `bilm.storage.stored_model.open_model`.
        weight_file: HDF5 file with the weights, if `options_file` is `options.json`.
        vocab_file: words, one per line, of a model that reads words; None for its `vocab.txt`.
        cache_size: number of recently used words whose context-free vectors are cached, with 4 P
            bytes each (P = 512: 205 MB for 100,000 words); 0 disables the cache.
        batch_tokens: tokens that are computed at a time. It bounds memory; results do not change.
        precision: dtype of matrix-multiplication inputs: `bfloat16` is faster on processors that
            support it, and changes vectors by about 0.5 %. `int8` stores the weights of LSTMs,
            highway layers and projections in eight bits and computes with ONNX Runtime on the CPU.
        backend: `keras`, or `numpy`, which computes in float32 without importing Keras: it starts
            sooner. None for the one that computes long texts faster: on a CPU, `keras` only on
            TensorFlow.

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

    def __init__(
        self,
        options_file: str | Path | StoredModel,
        weight_file: str | Path | None = None,
        vocab_file: str | Path | None = None,
        cache_size: int = 100_000,
        batch_tokens: int = 2048,
        precision: str = "float32",
        backend: str | None = None,
    ):
        self.stored = open_model(options_file, weight_file)
        self._model = open_backend(self.stored, backend, precision)
        self.options = self._model.options
        self.batch_tokens = batch_tokens
        self.vocab_file = self.stored.vocabulary_file(vocab_file)
        self.stored.check_words(self.vocab_file)
        self._settings = self.vocab_file, cache_size, batch_tokens, precision, backend
        self._encode = WordVectors.with_vocabulary(self._model, self.vocab_file)
        self._cache = TokenCache(cache_size, self._encode)
        lstm = self.options.lstm
        self.n_layers = lstm.n_layers + 1
        self.dim = len(self.options.directions) * lstm.projection_dim
        self.signs = TextSigns("sentences to embed", of_model=self.stored.profile)

    def __repr__(self) -> str:
        return f"<ElmoEmbedder of {self.stored}; {self.n_layers} layers, {self.dim} features>"

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

        About `WINDOW_BATCHES * batch_tokens` tokens are read ahead. `pool` and `normalize`: see
        `sentence_vectors`; `none` gives each word's vectors. Raises: DataError, OptionsError.
        """
        selection = self.selection(layers, pool, normalize)
        groups = self._groups(sentences, selection)
        in_order = (dict(self._embed(group, selection)) for group in groups)
        return (results.pop(k).copy() for results in in_order for k in range(len(results)))

    def embed_as_completed(
        self,
        sentences: Iterable[Sequence[str]],
        layers: Layers = "all",
        pool: str = "none",
        normalize: bool = False,
    ) -> Generator[tuple[int, list[str], np.ndarray], None, None]:
        """Embed a stream as `embed_sentences` does, and yield each sentence as soon as it has been
        computed: its number, from 0, its words and its vectors, a view of those of many sentences:
        copy what you keep. Other sentences are computed while the caller processes it."""
        selection = self.selection(layers, pool, normalize)
        first = 0  # number of the first sentence of a group
        for group in self._groups(sentences, selection):
            for k, vectors in self._embed(group, selection):
                yield first + k, group[k], vectors
                del vectors  # a view, which would keep all of its group during the next one
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
            normalize: divide the result of a sentence by its Euclidean norm, as simple_elmo does.
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
        return Selection(self.options, layers, pool, normalize)

    def warm_up(
        self, sentences: Iterable[Sequence[str]] = (), layers: Layers = "all", pool: str = "none"
    ) -> None:
        """Compile the functions that embed one sentence and several, which otherwise happens at the
        first sentences, and cache the words of sentences. Vectors do not change. `layers` and
        `pool` limit how many sentences are read ahead. Raises: DataError, OptionsError."""
        selection = self.selection(layers, pool)
        for group in self._groups(sentences, selection):
            self._look_up(group)
        # The marks are encoded outside the cache: its contents and order remain those of embedding.
        table = self._encode(self._encode.marks)
        marks = np.arange(len(table))
        for n in (1, 2):
            rows, lengths = np.tile(marks, n), np.full(n, len(marks))
            list(collected(self._model, table, rows, lengths, selection, self.batch_tokens))

    def clear_cache(self) -> None:
        """Remove all words from the cache."""
        self._cache.clear()

    def _groups(
        self, sentences: Iterable[Sequence[str]], selection: Selection
    ) -> Iterator[list[list[str]]]:
        """Yield sentences in groups that are packed together: about `WINDOW_BATCHES` batches, or as
        many tokens as fill all rows with long sentences and whose vectors fit in memory."""
        max_tokens = WINDOW_TOKENS
        if selection.pool == "none":
            max_tokens = min(WINDOW_BYTES // (4 * selection.n_features), max_tokens)
        min_tokens = WINDOW_BATCHES * self.batch_tokens
        n_rows = min(MAX_ROWS, self.batch_tokens)
        group: list[list[str]] = []
        n_tokens = longest = 0
        checked = checked_sentences(sentences, lambda line: self.signs.add_line(line).split())
        for words in self.signs.watch(checked, list):
            group.append(words)
            n_tokens += len(words) + 2
            longest = max(longest, len(words) + 2)
            if n_tokens >= max(min_tokens, min(n_rows * longest, max_tokens)):
                yield group
                group = []
                n_tokens = longest = 0
        if group:
            yield group

    def _look_up(self, group: list[list[str]]) -> tuple[np.ndarray, np.ndarray]:
        """Return a table of vectors, float32 (U, P), and the rows in it of the words of sentences
        with their marks, one sentence after another, int32 (N,); -1 for padding."""
        begin, end = self._encode.marks
        words = [word for sentence in group for word in (begin, *sentence, end)]
        distinct = [word for word in dict.fromkeys(chain(self._encode.marks, words)) if word]
        row_of = {"": -1} | {word: row for row, word in enumerate(distinct)}
        rows = np.fromiter(map(row_of.__getitem__, words), np.int32, len(words))
        return self._cache(distinct), rows

    def _embed(
        self, group: list[list[str]], selection: Selection
    ) -> Generator[tuple[int, np.ndarray], None, None]:
        table, rows = self._look_up(group)
        lengths = np.array([len(words) + 2 for words in group])
        return collected(self._model, table, rows, lengths, selection, self.batch_tokens)
