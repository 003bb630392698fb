"""Arrow record batches -> Arrow record batches with vectors, the function below every engine."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.data.readers import Record
from bilm.data.tokenization import tokenizer
from bilm.embedding.corpus import refuse_tabs
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.selection import Layers, Selection
from bilm.embedding.writers import GROUP_BYTES, Content, parquet_columns, parquet_schema, rows_of
from bilm.errors import DataError, OptionsError
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.files import expanded, version_of
from bilm.support.imports import optional

if TYPE_CHECKING:
    import pyarrow

Model = str | Path | StoredModel | ElmoEmbedder
_opening = threading.Lock()


def embed_batches(
    batches: Iterable[pyarrow.RecordBatch],
    model: Model,
    column: str,
    layers: Layers = "average",
    pool: str = "mean",
    *,
    keep: Sequence[str] | None = None,
    normalize: bool = False,
    dtype: str = "float32",
    tokenize: str | None = None,
    weights: str | Path | None = None,
    vocab: str | Path | None = None,
    precision: str = "float32",
) -> Iterator[pyarrow.RecordBatch]:
    """Embed a stream of record batches in bounded memory and yield batches with vectors in order.

    The model is opened once per process, also if the function is called for each batch. Sentences
    are packed together across batches. Batches with more than `GROUP_BYTES` of vectors are divided.

    Args:
        batches: record batches, of any sizes.
        model: see `bilm.storage.stored_model.open_model`; an embedder is used as it is.
        column: column with text, or with lists of words. A missing value is an empty sentence.
        layers, pool, normalize: see `ElmoEmbedder`; the pool `none` gives each word's vectors.
        keep: columns to copy to the result; None for all except `column`.
        dtype: `float32` or `float16`.
        tokenize: language whose spaCy rules split text into words; None splits at whitespace.
        weights, vocab, precision: see `ElmoEmbedder`; ignored if `model` is an embedder.
    Returns: batches with the columns `keep`, then those of `bilm embed`: `sentence` and `vector`,
        a list of fixed size, if pooled; otherwise `words` and `vectors`, a list of such lists. With
        several layers, `layer_0`, `layer_1`, ... replace the last one.
    Raises: DataError if the column is missing or has another type; OptionsError; WeightsError;
        BilmError if pyarrow is missing; ValueError for another dtype.

    Example:
        table = pyarrow.table({"id": [1, 2], "text": ["The bank closed .", "She sat there ."]})
        batches = embed_batches(table.to_batches(), "novels-en", "text")
        vectors = pyarrow.Table.from_batches(batches)
    """
    pyarrow = optional("pyarrow", "parquet", "embed_batches")
    embedder = opened(model, weights, vocab, precision)
    content = _content(embedder, layers, pool, dtype, normalize)
    split = tokenizer(tokenize)
    waiting: deque[_Batch] = deque()

    def sentences() -> Iterator[list[str]]:
        for batch in batches:
            words = _words(batch, column, split)
            if words:
                waiting.append(_Batch(batch, words))
            yield from words

    def embedded() -> Generator[Any, None, None]:
        group: list[np.ndarray] = []
        start = n_bytes = 0
        for vectors in embedder.embed_sentences(sentences(), layers, pool, normalize):
            group.append(vectors)
            n_bytes += vectors.nbytes
            batch, words = waiting[0]
            stop = start + len(group)
            if stop == len(words) or n_bytes >= GROUP_BYTES:
                part = batch.slice(start, stop - start)
                yield _result(pyarrow, part, words[start:stop], group, content, column, keep)
                start, n_bytes, group = stop, 0, []
                if stop == len(words):
                    waiting.popleft()
                    start = 0

    return embedded()


def output_schema(
    schema: pyarrow.Schema,
    model: Model,
    column: str,
    layers: Layers = "average",
    pool: str = "mean",
    *,
    keep: Sequence[str] | None = None,
    dtype: str = "float32",
    weights: str | Path | None = None,
) -> pyarrow.Schema:
    """Return the schema of the batches of `embed_batches`, without loading the weights.

    Args:
        schema: schema of the input batches.
        model, column, layers, pool, keep, dtype, weights: as for `embed_batches`.
    Raises: DataError, OptionsError, WeightsError as `embed_batches` does.
    """
    pyarrow = optional("pyarrow", "parquet", "output_schema")
    _place(schema, column)
    found = model if isinstance(model, ElmoEmbedder) else open_model(model, weights)
    return _schema(pyarrow, schema, _content(found, layers, pool, dtype), column, keep)


def opened(
    model: Model,
    weights: str | Path | None = None,
    vocab: str | Path | None = None,
    precision: str = "float32",
) -> ElmoEmbedder:
    """Return the embedder of a model; a process opens the same files only once."""
    if isinstance(model, ElmoEmbedder):
        return model
    if isinstance(model, StoredModel):
        return ElmoEmbedder(model, weights, vocab, precision=precision)
    with _opening:  # threads of an engine share an embedder
        weights, vocab = (None if path is None else str(path) for path in (weights, vocab))
        files: list[str | Path] = [] if vocab is None else [vocab]
        if os.path.exists(expanded(model)):  # not a name or a URL
            files += open_model(model, weights).own_files
        versions = tuple(version_of(path) for path in files if os.path.isfile(path))
        return _opened(str(model), weights, vocab, precision, versions)


@lru_cache(maxsize=2)
def _opened(
    model: str, weights: str | None, vocab: str | None, precision: str, versions: object
) -> ElmoEmbedder:
    """Open a model; files with other `versions` are opened again."""
    return ElmoEmbedder(model, weights, vocab, precision=precision)


class _Batch(NamedTuple):
    """A batch whose sentences are being embedded."""

    batch: Any
    words: list[list[str]]


def _content(
    model: StoredModel | ElmoEmbedder,
    layers: Layers,
    pool: str,
    dtype: str,
    normalize: bool = False,
) -> Content:
    """Return the content of the batches."""
    if dtype not in ("float32", "float16"):
        raise ValueError(f"dtype is {dtype!r}, expected float32 or float16")
    lstm, directions = model.options.lstm, model.options.directions
    dim = len(directions) * lstm.projection_dim
    selection = Selection(layers, pool, normalize, lstm.n_layers + 1, dim)
    return Content(selection.shape, dtype, pool != "none", selection.numbers)


def _words(batch: Any, column: str, split: Any) -> list[list[str]]:
    """Return the words of each row of a batch. Raises: DataError."""
    if not hasattr(batch, "schema"):
        raise DataError(
            f"found a {type(batch).__name__}, expected record batches; of a table, pass "
            "table.to_batches()"
        )
    array = batch.column(_place(batch.schema, column))
    words = [_sentence(value, split) for value in array.to_pylist()]
    if any(sentence is None for sentence in words):
        raise DataError(
            f"column {column!r} has the type {array.type}; expected text, or lists of words "
            "without missing values"
        )
    for sentence in words:
        refuse_tabs(sentence, f"column {column!r}")  # type: ignore[arg-type]
    return words  # type: ignore[return-value]


def _place(schema: Any, column: str) -> int:
    """Return the position of a column. Raises: DataError if it is missing or occurs twice."""
    names = schema.names
    if names.count(column) != 1:
        listed = ", ".join(map(repr, names[:20])) or "none"
        raise DataError(f"the data must have one column {column!r}; found {listed}")
    return names.index(column)


def _sentence(value: Any, split: Any) -> list[str] | None:
    """Return the words of a cell; None if it is neither text nor a list of words."""
    if value is None:
        return []
    if isinstance(value, str):
        return split(value)
    is_words = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return value if is_words else None


def _schema(
    pyarrow: Any, schema: Any, content: Content, column: str, keep: Sequence[str] | None
) -> Any:
    """Return the schema of the results."""
    if isinstance(keep, str):
        raise OptionsError(f"keep is {keep!r}, expected a list of names, such as [{keep!r}]")
    kept = [name for name in schema.names if name != column] if keep is None else list(keep)
    added = parquet_schema(content)
    for name in kept:
        problem = ""
        if name not in schema.names:
            problem = "is missing"
        elif name in added.names:
            problem = "has the name of a column of the result"
        elif kept.count(name) > 1 or schema.names.count(name) > 1:
            problem = "occurs twice"
        if problem:
            raise OptionsError(
                f"keep: the column {name!r} {problem}; name the columns to keep, which must exist "
                f"and differ from each other and from {', '.join(added.names)}"
            )
    return pyarrow.schema([*(schema.field(name) for name in kept), *added])


def _result(
    pyarrow: Any,
    batch: Any,
    words: list[list[str]],
    group: list[np.ndarray],
    content: Content,
    column: str,
    keep: Sequence[str] | None,
) -> Any:
    """Return a batch of the kept columns, words and vectors of some rows."""
    schema = _schema(pyarrow, batch.schema, content, column, keep)
    rows = np.concatenate([rows_of(vectors, content) for vectors in group])
    added = parquet_columns(content, [Record(sentence) for sentence in words], rows)
    n_kept = len(schema) - len(added)
    kept = [batch.column(name) for name in schema.names[:n_kept]]
    return pyarrow.RecordBatch.from_arrays([*kept, *added], schema=schema)
