"""What Spark's Python workers run: sentences in, vectors out.

Nothing of TensorFlow, Keras or pyarrow is imported at the start of the module, so that a worker can
set the number of threads first.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from bilm.data.readers import Corpus, Record
from bilm.data.shares import Piece
from bilm.errors import BilmError, WeightsError
from bilm.support.process import quiet, share_cores

if TYPE_CHECKING:
    import pyarrow

Layers = str | Sequence[int]
BATCH_ROWS = 1000  # sentences read at a time


@dataclass(frozen=True)
class Work:
    """The function that Spark's workers call; its attributes are the arguments of `embed`."""

    model: str
    weights: str | None
    vocab: str | None
    digest: str
    column: str
    layers: Layers
    pool: str
    keep: tuple[str, ...] | None
    normalize: bool
    tokenize: str | None
    precision: str
    n_cores: int
    shipped: str | None = None

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Yield batches with vectors, in a worker process. Raises: WeightsError, DataError."""
        quiet()
        share_cores(self.n_cores)
        from bilm.cluster.batches import embed_batches

        model = self.model if self.shipped is None else _shipped(self.shipped)
        self.check(model)
        embedded = embed_batches(
            batches,
            model,
            self.column,
            self.layers,
            self.pool,
            keep=self.keep,
            normalize=self.normalize,
            tokenize=self.tokenize,
            weights=self.weights,
            vocab=self.vocab,
            precision=self.precision,
        )
        return map(_with_lists, embedded)

    def check(self, model: str) -> None:
        """Raise WeightsError, with the name of the host, if its model is missing or differs."""
        from bilm.storage.stored_model import open_model

        try:
            found = open_model(model, self.weights).digest
        except BilmError as error:
            raise WeightsError(
                f"worker {socket.gethostname()}: the model cannot be opened: {error}; store it "
                "under the same path on all hosts, or use --ship_model"
            ) from error
        if found != self.digest:
            raise WeightsError(
                f"worker {socket.gethostname()}: {model} differs from the driver's model; store "
                "the same files on all hosts, or use --ship_model"
            )


def _with_lists(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Return a batch with lists of variable instead of fixed size."""
    import pyarrow

    arrays = [batch.column(i) for i in range(batch.num_columns)]
    arrays = [array.cast(with_list(pyarrow, array.type)) for array in arrays]
    return pyarrow.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def with_list(pyarrow: Any, kind: Any) -> Any:
    """Return an Arrow type with lists of variable instead of fixed size."""
    if pyarrow.types.is_fixed_size_list(kind) or pyarrow.types.is_list(kind):
        return pyarrow.list_(with_list(pyarrow, kind.value_type))
    return kind


def _shipped(name: str) -> str:
    """Return the path of an archive that `_ship` has sent to this worker."""
    from pyspark import SparkFiles

    return SparkFiles.get(name)


@dataclass(frozen=True)
class Reading:
    """Reads the sentences of a share of a corpus as record batches."""

    shares: tuple[tuple[Piece, ...], ...]
    options: tuple[tuple[str, Any], ...]
    has_ids: bool

    @property
    def schema(self) -> pyarrow.Schema:
        """The columns `id`, if sentences have ids, and `words`."""
        import pyarrow

        ids = [("id", pyarrow.string())] if self.has_ids else []
        return pyarrow.schema([*ids, ("words", pyarrow.list_(pyarrow.string()))])

    def batches(self, share: int) -> Iterator[pyarrow.RecordBatch]:
        """Yield the sentences of a share. Raises: DataError."""
        import pyarrow

        from bilm.embedding.corpus import refuse_tabs

        schema = self.schema
        for path, span in self.shares[share]:
            records = iter(Corpus(path, **dict(self.options), span=span))
            number = 0
            while group := list(islice(records, BATCH_ROWS)):
                for record in group:
                    number += 1
                    refuse_tabs(record.words, f"{path}, record {number} of part {share}")
                yield pyarrow.RecordBatch.from_pylist(
                    [_row(record, self.has_ids) for record in group], schema
                )


def _row(record: Record, has_ids: bool) -> dict[str, Any]:
    return {"words": record.words, **({"id": record.id} if has_ids else {})}


@dataclass(frozen=True)
class ReadAndEmbed:
    """The function that Spark's workers call with the numbers of the shares to embed."""

    read: Reading
    work: Work

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Yield batches with vectors, in a worker process."""
        shares = (share for batch in batches for share in batch.column(0).to_pylist())
        return self.work(batch for share in shares for batch in self.read.batches(share))
