"""Arrow record batches -> Arrow record batches with vectors, the function below every engine, such
as Spark, Ray, Dask and Hugging Face datasets; `examples/embed_with_*.py` call it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bilm.data.readers import Record
from bilm.data.readers.tables import check_columns, words_of
from bilm.data.tokenization import tokenizer
from bilm.embedding.collecting import Layers, Selection
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.embedding_file import refuse_tabs
from bilm.embedding.shared import ModelFiles, shared_embedder
from bilm.embedding.writers import GROUP_BYTES, Content, parquet_batch, parquet_schema, rows_of
from bilm.errors import DataError, OptionsError, require_one_of
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.imports import optional

if TYPE_CHECKING:
    import pyarrow

Model = str | Path | StoredModel | ElmoEmbedder


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
    Raises: DataError if a column is missing or has another type; OptionsError; WeightsError;
        BilmError if pyarrow is missing.

    Example:
        table = pyarrow.table({"id": [1, 2], "text": ["The bank closed .", "She sat there ."]})
        batches = embed_batches(table.to_batches(), "novels-en", "text")
        vectors = pyarrow.Table.from_batches(batches)
    """
    arrow = optional("pyarrow", "parquet", "embed_batches")
    if isinstance(model, ElmoEmbedder):
        embedder = model
    else:
        files = ModelFiles(model, weights, vocab)
        embedder = shared_embedder(files, files.digest(), precision)
    content = _content(embedder, layers, pool, dtype, normalize)
    split = partial(map, tokenizer(tokenize))
    # Batches whose sentences are being embedded, and these sentences.
    pending: deque[tuple[pyarrow.RecordBatch, list[list[str]]]] = deque()

    def sentences() -> Iterator[list[str]]:
        for batch in batches:
            if not hasattr(batch, "schema"):
                raise DataError(
                    f"found a {type(batch).__name__}, expected record batches; of a table, pass "
                    "table.to_batches()"
                )
            check_columns([column], batch.schema.names, "the data")
            of_batch = []
            for value in batch.column(column).to_pylist():
                (words,) = words_of({column: value}, column, split, "record batch")
                refuse_tabs(words, f"column {column!r}")
                of_batch.append(words)
            if of_batch:
                pending.append((batch, of_batch))
            yield from of_batch

    def embedded() -> Generator[pyarrow.RecordBatch, None, None]:
        start = 0  # number of rows of the first pending batch that have been yielded
        rows: list[np.ndarray] = []  # vectors of the rows after them
        n_bytes = 0
        for vectors in embedder.embed_sentences(sentences(), layers, pool, normalize):
            rows.append(rows_of(vectors, content))
            n_bytes += vectors.nbytes
            batch, words = pending[0]
            stop = start + len(rows)
            is_complete = stop == len(words)
            if is_complete or n_bytes >= GROUP_BYTES:
                records = list(map(Record, words[start:stop]))
                added = parquet_batch(content, records, np.concatenate(rows)).columns
                schema = _output_schema(batch.schema, content, column, keep)
                kept = [batch.column(name) for name in schema.names[: -len(added)]]
                kept = [array.slice(start, stop - start) for array in kept]
                yield arrow.RecordBatch.from_arrays([*kept, *added], schema=schema)
                start = stop
                rows = []
                n_bytes = 0
            if is_complete:
                pending.popleft()
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
    """Return the schema of the batches of `embed_batches` for that of its input, without loading
    the weights. Raises: DataError, OptionsError, WeightsError as `embed_batches` does."""
    optional("pyarrow", "parquet", "output_schema")
    check_columns([column], schema.names, "the data")
    source = model if isinstance(model, ElmoEmbedder) else open_model(model, weights)
    return _output_schema(schema, _content(source, layers, pool, dtype), column, keep)


def _output_schema(
    schema: pyarrow.Schema, content: Content, column: str, keep: Sequence[str] | None
) -> pyarrow.Schema:
    import pyarrow

    if isinstance(keep, str):
        raise OptionsError(f"keep is {keep!r}, expected a list of names, such as [{keep!r}]")
    if keep is None:
        keep = [name for name in schema.names if name != column]
    check_columns(keep, schema.names, "keep")
    added = parquet_schema(content)
    name, n = Counter([*keep, *added.names]).most_common(1)[0]
    if n > 1:
        raise OptionsError(
            f"keep: the result would have {n} columns {name!r}; the columns to keep must differ "
            f"from each other and from {', '.join(added.names)}"
        )
    return pyarrow.schema([*(schema.field(name) for name in keep), *added])


def _content(
    model: StoredModel | ElmoEmbedder,
    layers: Layers,
    pool: str,
    dtype: str,
    normalize: bool = False,
) -> Content:
    require_one_of("dtype", dtype, ("float32", "float16"))
    selection = Selection(model.options, layers, pool, normalize)
    return Content(selection.shape, dtype, pool != "none", selection.numbers)
