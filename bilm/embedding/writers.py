"""Writers of the files of `bilm embed`, one class per format. The ending of a name determines it:

- HDF5: sentence i, counted from 0, is the dataset `"i"`, with its words in the attribute
  `sentence`. If sentences have ids, the datasets are named by them, with _ instead of /, and have
  the attribute `id`.
- `.npz`: `vectors`, of all words (N, ...) or pooled (n, ...); `offsets`, integer (n + 1,):
  sentence i has the rows `vectors[offsets[i] : offsets[i + 1]]`; `ids`, strings (n,). The axis of
  layers, if there is one, is the second.
- `.parquet`: a row per sentence with its `id`, its `words` and a column `vectors` or, for several
  layers, `layer_0`, `layer_1`, ...; if pooled, with the columns `id`, `sentence` (its words as
  text), and `vector`, or `layer_0`, `layer_1`, ...
"""

from __future__ import annotations

import os
import shutil
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import h5py
import numpy as np
from h5py import h5a, h5d, h5o, h5p, h5s, h5t

from bilm.data.readers import Record
from bilm.embedding import embedding_file
from bilm.embedding.forms import FORMATS
from bilm.errors import DataError, OptionsError
from bilm.storage.hdf5 import Disk, NewHDF5, to_read
from bilm.support.imports import optional

if TYPE_CHECKING:
    import pyarrow

GROUP_BYTES = 1 << 24  # vectors written at a time, a row group of Parquet
STRING = h5py.string_dtype()


class Content(NamedTuple):
    """The content of an output."""

    shape: tuple[int, ...]  # of the vectors of a word or a pooled sentence: (D,) or (layers, D)
    dtype: str  # float32 or float16
    is_pooled: bool  # whether a sentence has one row; otherwise it has one per word
    layers: Sequence[int]  # numbers of the layers in a row; empty if it has one layer
    has_ids: bool = False  # whether sentences have ids

    def n_rows(self, records: Sequence[Record]) -> int:
        """Return the number of rows of sentences."""
        return len(records) if self.is_pooled else sum(len(record.words) for record in records)


class Writer(ABC):
    """Writes sentences and their vectors into a new file. `first` is the number of the first
    sentence, `n_rows` the number of rows of all sentences."""

    def __init__(self, path: Path, content: Content, first: int, n_rows: int):
        self._path = path
        self._content = content

    @staticmethod
    def name_of(id_: str) -> str:
        """Return the name of a sentence in the file, which must be unique, from its id."""
        return id_

    @abstractmethod
    def add(self, number: int, record: Record, vectors: np.ndarray) -> None:
        """Add a sentence by its number; vectors (..., T, D), or (..., D) if pooled."""

    def append(self, part: Path) -> None:
        """Add the sentences of a file that such a writer has written; parts come in order. Raises:
        DataError if it is damaged; OSError."""
        try:
            self._append(part)
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
            if isinstance(error, OSError) and error.errno:  # of the output's disk
                raise
            raise DataError(
                f"{part}: damaged ({error}); remove it and repeat the command"
            ) from error

    @abstractmethod
    def _append(self, part: Path) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Complete the file."""


class HDF5Writer(Writer):
    """A dataset of HDF5 per sentence, named by its id or else its number, in any order."""

    def __init__(self, path: Path, content: Content, first: int, n_rows: int):
        super().__init__(path, content, first, n_rows)
        self._file = NewHDF5(path)
        if content.has_ids:
            self._file.attrs[embedding_file.BY_ID] = True
        if content.is_pooled:
            self._file.attrs[embedding_file.POOLED] = True
        self._untimed = h5p.create(h5p.DATASET_CREATE)
        self._untimed.set_obj_track_times(False)  # so that equal vectors give equal files
        self._scalar = h5s.create(h5s.SCALAR)

    @staticmethod
    def name_of(id_: str) -> str:
        """Return the dataset name for an id; HDF5 does not allow `/` or a lone `.` in names."""
        return "_" if id_ == "." else id_.replace("/", "_")

    def add(self, number: int, record: Record, vectors: np.ndarray) -> None:
        name = str(number) if record.id is None else self.name_of(record.id)
        vectors = np.ascontiguousarray(vectors, self._content.dtype)
        # HDF5's own functions: those of h5py take several times as long.
        in_file, in_memory = hdf5_types(vectors.dtype)
        space = h5s.create_simple(vectors.shape)
        dataset = h5d.create(self._file.id, name.encode(), in_file, space, self._untimed)
        dataset.write(h5s.ALL, h5s.ALL, vectors, in_memory)
        self._describe(dataset, embedding_file.SENTENCE, embedding_file.join_words(record.words))
        if record.id is not None:
            self._describe(dataset, embedding_file.ID, record.id)
            self._describe(dataset, embedding_file.PLACE, number)
        self._file.check()

    def _describe(self, dataset: h5d.DatasetID, name: str, value: str | int) -> None:
        array = np.array(value, STRING if isinstance(value, str) else np.int64)
        in_file, in_memory = hdf5_types(array.dtype)
        attribute = h5a.create(dataset, name.encode(), in_file, self._scalar)
        attribute.write(array, in_memory)

    def _append(self, part: Path) -> None:
        # Reopened for each part, because HDF5's memory for an open file grows with its content.
        self.close()
        self._file = NewHDF5(self._path, "a")
        with to_read(part) as file:
            for name in file.id:
                h5o.copy(file.id, name, self._file.id, name)
                self._file.check()

    def close(self) -> None:
        self._file.__exit__(None, None, None)


class OrderedWriter(Writer):
    """Writes sentences in their order."""

    def __init__(self, path: Path, content: Content, first: int, n_rows: int):
        super().__init__(path, content, first, n_rows)
        self._waiting: dict[int, tuple[Record, np.ndarray]] = {}
        self._next = first

    def add(self, number: int, record: Record, vectors: np.ndarray) -> None:
        # It waits for those before it.
        self._waiting[number] = record, vectors
        while self._next in self._waiting:
            record, vectors = self._waiting.pop(self._next)
            self._write(record, rows_of(vectors, self._content))
            self._next += 1

    @abstractmethod
    def _write(self, record: Record, rows: np.ndarray) -> None:
        """Write the next sentence and its rows, (rows, ...)."""


class NpzWriter(OrderedWriter):
    """An archive of arrays of NumPy: `vectors`, `offsets` unless pooled, and ids."""

    def __init__(self, path: Path, content: Content, first: int, n_rows: int):
        super().__init__(path, content, first, n_rows)
        self._disk = Disk(path, "w+")  # zipfile would repeat a failed write, and print its error
        self._archive = zipfile.ZipFile(self._disk, "w")
        self._file = self._archive.open("vectors.npy", "w", force_zip64=True)
        dtype = np.lib.format.dtype_to_descr(np.dtype(content.dtype))
        header = {"descr": dtype, "fortran_order": False, "shape": (n_rows, *content.shape)}
        np.lib.format.write_array_header_1_0(self._file, header)
        self._lengths: list[int] = []
        self._ids: list[str] = []

    def _append(self, part: Path) -> None:
        with zipfile.ZipFile(part) as archive:
            with archive.open("vectors.npy") as file:
                np.lib.format.read_magic(file)
                np.lib.format.read_array_header_1_0(file)
                shutil.copyfileobj(file, self._file, 1 << 20)
                self._disk.check()
            if not self._content.is_pooled:
                with archive.open("offsets.npy") as file:
                    self._lengths += np.diff(np.lib.format.read_array(file)).tolist()
        if self._content.has_ids:
            self._ids += embedding_file.read_ids(part)

    def _write(self, record: Record, rows: np.ndarray) -> None:
        if rows.size:  # a view of no values has no bytes
            self._file.write(rows.data)
        self._disk.check()
        self._lengths.append(len(record.words))
        if record.id is not None:
            self._ids.append(record.id)

    def close(self) -> None:
        self._file.close()
        arrays = {}
        if not self._content.is_pooled:
            arrays["offsets"] = np.cumsum([0, *self._lengths], dtype=np.int64)
        if self._content.has_ids:
            arrays[embedding_file.IDS] = np.array(self._ids, str)
        for name, array in arrays.items():
            with self._archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array)
        self._archive.close()
        self._disk.close()
        self._disk.check()


class ParquetWriter(OrderedWriter):
    """A Parquet file with a row per sentence, written in groups of about `GROUP_BYTES`."""

    def __init__(self, path: Path, content: Content, first: int, n_rows: int):
        super().__init__(path, content, first, n_rows)
        self._group: list[tuple[Record, np.ndarray]] = []
        self._n_bytes = 0  # of the group
        from pyarrow import parquet

        self._parquet = parquet
        # Vectors do not compress well, and words are small in comparison.
        self._file = parquet.ParquetWriter(
            path,
            parquet_schema(content),
            compression="none",
            use_dictionary=False,
            write_statistics=False,
        )

    def _append(self, part: Path) -> None:
        with self._parquet.ParquetFile(part) as file:
            for k in range(file.num_row_groups):
                self._file.write_table(file.read_row_group(k))

    def _write(self, record: Record, rows: np.ndarray) -> None:
        self._group.append((record, rows))
        self._n_bytes += rows.nbytes
        if self._n_bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._group:
            records, rows = zip(*self._group, strict=True)
            self._group = []
            self._n_bytes = 0
            self._file.write_batch(parquet_batch(self._content, records, np.concatenate(rows)))

    def close(self) -> None:
        self._flush()
        self._file.close()


@cache
def hdf5_types(dtype: np.dtype) -> tuple[h5t.TypeID, h5t.TypeID]:
    """Return HDF5's types of values in a file and in memory."""
    return h5t.py_create(dtype, logical=True), h5t.py_create(dtype)


def parquet_batch(
    content: Content, records: Sequence[Record], rows: np.ndarray
) -> pyarrow.RecordBatch:
    """Return the columns of a Parquet file, see the module, for sentences and their rows."""
    import pyarrow

    # The columns of ids and words.
    words = [record.words for record in records]
    columns: dict[str, Any] = {}
    if content.has_ids:
        columns["id"] = pyarrow.array([record.id for record in records], pyarrow.string())
    if content.is_pooled:
        sentences = map(embedding_file.join_words, words)
        columns["sentence"] = pyarrow.array(sentences, pyarrow.string())
    else:
        columns["words"] = pyarrow.array(words, pyarrow.list_(pyarrow.string()))

    # A column of vectors per layer.
    offsets: np.ndarray = np.cumsum([0, *map(len, words)], dtype=np.int32)
    layers = [rows] if rows.ndim == 2 else rows.swapaxes(0, 1)
    names = [f"layer_{number}" for number in content.layers]
    names = names or ["vector" if content.is_pooled else "vectors"]
    for name, values in zip(names, layers, strict=True):
        flat = pyarrow.array(np.ascontiguousarray(values).reshape(-1))
        vectors = pyarrow.FixedSizeListArray.from_arrays(flat, content.shape[-1])
        if not content.is_pooled:
            vectors = pyarrow.ListArray.from_arrays(pyarrow.array(offsets), vectors)
        columns[name] = vectors
    return pyarrow.record_batch(columns)


def parquet_schema(content: Content) -> pyarrow.Schema:
    """Return the names and types of the columns of a Parquet file."""
    return parquet_batch(content, [], np.empty((0, *content.shape), content.dtype)).schema


def rows_of(vectors: np.ndarray, content: Content) -> np.ndarray:
    """Return a sentence's vectors by row: (layers, T, D) -> (T, layers, D); one row if pooled."""
    if content.is_pooled:
        vectors = vectors[None]
    elif vectors.ndim == 3:
        vectors = vectors.swapaxes(0, 1)
    return np.ascontiguousarray(vectors, content.dtype)


def writer_class(outfile: str | os.PathLike) -> type[Writer]:
    """Return the writer of an output by its ending. Raises: OptionsError if the ending is unknown;
    BilmError if its package is not installed."""
    ending = Path(outfile).suffix
    if ending.lower() not in FORMATS:
        found = f"unknown ending {ending!r}" if ending else "a name without an ending"
        raise OptionsError(f"{outfile}: {found}; expected one of {', '.join(FORMATS)}")
    form = FORMATS[ending.lower()]
    if form == "parquet":
        optional("pyarrow.parquet", "parquet", f"{outfile}: Parquet")
    return {"hdf5": HDF5Writer, "npz": NpzWriter, "parquet": ParquetWriter}[form]
