"""The parts of a corpus -> one file, whose name says its format.

- HDF5: sentence i, counted from 0, is the dataset `"i"`, its words the attribute `sentence`. Where
  sentences have ids, these are the names, with _ for /, and the attribute `id`. Pooled, all are one
  dataset `vectors` (n, ...), beside `sentences` and `ids`.
- `.npz`: `vectors`, of all words (N, ...) or pooled (n, ...); `offsets` integer (n + 1,): those of
  sentence i are `vectors[offsets[i] : offsets[i + 1]]`; `ids`. The axis of layers, if there is one,
  is the second.
- `.parquet`: a row per sentence, with its `id`, its `words`, and a column `vectors` or, for several
  layers, `layer_0`, `layer_1`, ...; pooled, its words are text, `sentence`, and it has a `vector`.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from bilm.data.records import Corpus, Record
from bilm.embedding.collecting import layer_numbers
from bilm.embedding.embedding_file import BY_ID, ID, dataset_name, join_words
from bilm.embedding.part_files import Wanted, bytes_of_row, in_parts, read_rows
from bilm.embedding.parts import damaged
from bilm.errors import OptionsError
from bilm.extras import optional
from bilm.storage.hdf5 import NewHDF5

GROUP_BYTES = 1 << 26  # of vectors that are handled at a time, a row group of Parquet
FORMATS = {".npz": "npz", ".parquet": "parquet"}  # any other ending is HDF5


def format_of(outfile: str | os.PathLike) -> str:
    """Return the format of an output, by its name: `npz`, `parquet` or `hdf5`."""
    return FORMATS.get(Path(outfile).suffix.lower(), "hdf5")


def require_packages(outfile: str | os.PathLike) -> None:
    """Raise BilmError if a package that an output needs is not installed."""
    if format_of(outfile) == "parquet":
        _pyarrow(outfile)


def _pyarrow(outfile: str | os.PathLike) -> tuple[Any, Any]:
    names = ("pyarrow", "pyarrow.parquet")
    arrow, parquet = (optional(name, "parquet", f"{outfile}: Parquet") for name in names)
    return arrow, parquet


class Content(NamedTuple):
    """What an output holds.

    Fields:
        corpus: its records, which are read again.
        wanted: what is stored of each.
        part_sentences: see `in_parts`.
        shape: that of a row, (D,) or (layers, D).
        n_sentences: of the corpus.
        n_rows: one per sentence if pooled, otherwise one per word.
    """

    corpus: Corpus
    wanted: Wanted
    part_sentences: int
    shape: tuple[int, ...]
    n_sentences: int
    n_rows: int

    def groups(self, parts: Iterable[Path]) -> Iterator[tuple[list[Record], np.ndarray]]:
        """Yield some sentences at a time, in order, and their rows, (rows, ...), on disk.

        Raises: DataError for a part that is damaged or does not fit the corpus.
        """
        row_bytes = bytes_of_row(self.shape, self.wanted.dtype)
        for part, records in zip(parts, in_parts(self.corpus, self.part_sentences), strict=True):
            n_rows = [self.wanted.n_rows(record) for record in records]
            rows = read_rows(part, sum(n_rows), self.shape, self.wanted.dtype)
            group, begin, end = [], 0, 0
            for record, n in zip(records, n_rows, strict=True):
                if group and (end + n - begin) * row_bytes > GROUP_BYTES:
                    yield group, rows[begin:end]
                    group, begin = [], end
                group.append(record)
                end += n
            yield group, rows[begin:end]


def merge_datasets(merged: Path, parts: Iterable[Path], content: Content | None = None) -> None:
    """Write one HDF5 file with a dataset per sentence, named by its id, or else its number."""
    del content
    with NewHDF5(merged) as file:
        pass
    for part in parts:
        # Opened anew per part: the memory that HDF5 uses for an open file grows with it.
        with NewHDF5(merged, "a") as file, _opened(part) as source:
            for name in sorted(source, key=int):
                id_ = source[name].attrs.get(ID)
                if id_ is not None:
                    file.attrs[BY_ID] = True
                target = name if id_ is None else dataset_name(id_)
                h5py.h5o.copy(source.id, name.encode(), file.id, target.encode())
                file.check()


def write_npz(merged: Path, parts: Iterable[Path], content: Content) -> None:
    """Write `vectors`, the `offsets` of each sentence's in it unless pooled, and the `ids`."""
    ids: list[str | None] = []
    lengths = np.zeros(content.n_sentences + 1, np.int64)
    with zipfile.ZipFile(merged, "w") as archive:
        with archive.open("vectors.npy", "w", force_zip64=True) as file:
            shape = (content.n_rows, *content.shape)
            _write_header(file, shape, np.dtype(content.wanted.dtype))
            for records, rows in content.groups(parts):
                file.write(rows.data)
                start = len(ids) + 1
                ids += [record.id for record in records]
                lengths[start : len(ids) + 1] = list(map(content.wanted.n_rows, records))
        arrays = {} if content.wanted.pooled else {"offsets": np.cumsum(lengths)}
        if content.corpus.has_ids:
            arrays["ids"] = np.array(ids, str)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                _write_header(file, array.shape, array.dtype)
                file.write(array.tobytes())


def _write_header(file: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Start an array of NumPy's format, whose values follow."""
    descr = np.lib.format.dtype_to_descr(dtype)
    header = {"descr": descr, "fortran_order": False, "shape": tuple(map(int, shape))}
    np.lib.format.write_array_header_1_0(file, header)


def write_table(merged: Path, parts: Iterable[Path], content: Content) -> None:
    """Write one HDF5 file of pooled vectors: `vectors` (n, ...), `sentences`, and `ids`."""
    text, n = h5py.string_dtype(), content.n_sentences
    with NewHDF5(merged) as file:
        vectors = file.create_dataset("vectors", (n, *content.shape), content.wanted.dtype)
        sentences = file.create_dataset("sentences", (n,), text)
        ids = file.create_dataset("ids", (n,), text) if content.corpus.has_ids else None
        start = 0
        for records, rows in content.groups(parts):
            stop = start + len(records)
            vectors[start:stop] = rows
            sentences[start:stop] = [join_words(record.words) for record in records]
            if ids is not None:
                ids[start:stop] = [record.id for record in records]
            file.check()
            start = stop


def write_parquet(merged: Path, parts: Iterable[Path], content: Content) -> None:
    """Write a row per sentence: its `id`, its words, and its vectors in a column per layer.

    The words of a pooled sentence are text, `sentence`; others a list, `words`.
    """
    pyarrow, parquet = _pyarrow(merged)
    schema = _schema(pyarrow, content)
    # Vectors hardly shrink, and beside them words are small.
    how: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    with (
        open(merged, "wb") as file,
        parquet.ParquetWriter(file, schema, write_statistics=False, **how) as writer,
    ):
        for records, rows in content.groups(parts):
            columns = _columns(pyarrow, content, records, rows)
            writer.write_table(pyarrow.table(columns, schema))


def _schema(pyarrow: Any, content: Content) -> Any:
    """Return the names and types of the columns of Parquet."""
    kind = {"float32": pyarrow.float32(), "float16": pyarrow.float16()}[content.wanted.dtype]
    vector = pyarrow.list_(kind, content.shape[-1])
    ids = [("id", pyarrow.string())] if content.corpus.has_ids else []
    if content.wanted.pooled:
        words, of_layer = ("sentence", pyarrow.string()), vector
    else:
        words, of_layer = ("words", pyarrow.list_(pyarrow.string())), pyarrow.list_(vector)
    return pyarrow.schema([*ids, words, *((name, of_layer) for name in column_names(content))])


def check_names(outfile: str | os.PathLike, content: Content) -> None:
    """Raise OptionsError if two columns of Parquet would have one name."""
    names = column_names(content)
    if format_of(outfile) == "parquet" and len(set(names)) < len(names):
        raise OptionsError(f"layers is {content.wanted.layers!r}: a layer is there twice")


def column_names(content: Content) -> list[str]:
    """Return the names of Parquet's columns of vectors."""
    if len(content.shape) == 1:
        return ["vector" if content.wanted.pooled else "vectors"]
    numbers = layer_numbers(content.wanted.layers) or range(content.shape[0])  # of "all"
    return [f"layer_{number}" for number in numbers]


def _columns(pyarrow: Any, content: Content, records: list[Record], rows: np.ndarray) -> list:
    """Return the columns of some rows of Parquet."""
    if content.wanted.pooled:
        columns = [[join_words(record.words) for record in records]]
    else:
        columns = [[record.words for record in records]]
    if content.corpus.has_ids:
        columns.insert(0, [record.id for record in records])
    offsets = np.cumsum([0, *(len(record.words) for record in records)], dtype=np.int32)
    for i in range(len(column_names(content))):
        values = rows if rows.ndim == 2 else rows[:, i]
        flat = pyarrow.array(np.ascontiguousarray(values).reshape(-1))
        vectors = pyarrow.FixedSizeListArray.from_arrays(flat, content.shape[-1])
        if not content.wanted.pooled:
            vectors = pyarrow.ListArray.from_arrays(pyarrow.array(offsets), vectors)
        columns.append(vectors)
    return columns


WRITERS = {"hdf5": write_table, "npz": write_npz, "parquet": write_parquet}


def _opened(part: Path) -> h5py.File:
    try:
        return h5py.File(part, "r")
    except OSError as error:
        raise damaged(part, error) from error
