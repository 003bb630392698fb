"""Merges the parts of a corpus into one file; the ending of its name determines the format.

- HDF5: sentence i, counted from 0, is the dataset `"i"`, with its words in the attribute
  `sentence`. If sentences have ids, the datasets are named by them, with _ instead of /, and have
  the attribute `id`. Pooled vectors are one dataset `vectors` (n, ...), with `sentences` and `ids`.
- `.npz`: `vectors`, of all words (N, ...) or pooled (n, ...); `offsets`, integer (n + 1,):
  sentence i has the rows `vectors[offsets[i] : offsets[i + 1]]`; `ids`, strings (n,). If an array
  of strings would be much larger than the ids, because one of them is long, there are instead
  `ids_utf8`, uint8, and `ids_offsets`, integer (n + 1,): `bilm.read_ids` reads both. The axis of
  layers, if there is one, is the second.
- `.parquet`: a row per sentence with its `id`, its `words` and a column `vectors` or, for several
  layers, `layer_0`, `layer_1`, ...; pooled, with `id`, its words as text, `sentence`, and `vector`.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from bilm.data.readers import Record
from bilm.embedding.choices import FORMATS
from bilm.embedding.collecting import layer_numbers
from bilm.embedding.embedding_file import (
    BY_ID,
    ID,
    IDS,
    IDS_OFFSETS,
    IDS_UTF8,
    dataset_name,
    join_words,
)
from bilm.embedding.parts import Wanted, bytes_of_row, damaged, read_rows
from bilm.errors import OptionsError
from bilm.storage.hdf5 import NewHDF5
from bilm.support.imports import optional

GROUP_BYTES = 1 << 26  # vectors written at a time, a row group of Parquet
STRINGS_BYTES = 1 << 20  # an array of strings may always be this large


def format_of(outfile: str | os.PathLike) -> str:
    """Return the format of an output, by its ending: `npz`, `parquet` or `hdf5`.

    Raises: OptionsError if the ending is unknown.
    """
    ending = Path(outfile).suffix
    if ending.lower() not in FORMATS:
        found = f"unknown ending {ending!r}" if ending else "a name without an ending"
        raise OptionsError(f"{outfile}: {found}; expected one of {', '.join(FORMATS)}")
    return FORMATS[ending.lower()]


def check_output(outfile: str | os.PathLike) -> None:
    """Check that an output can be written.

    Raises: OptionsError for an unknown ending; BilmError if a package is not installed.
    """
    if format_of(outfile) == "parquet":
        _pyarrow(outfile)


def _pyarrow(outfile: str | os.PathLike) -> tuple[Any, Any]:
    names = ("pyarrow", "pyarrow.parquet")
    arrow, parquet = (optional(name, "parquet", f"{outfile}: Parquet") for name in names)
    return arrow, parquet


class Content(NamedTuple):
    """The content of an output.

    Fields:
        wanted: what is stored for each sentence.
        shape: shape of a row, (D,) or (layers, D).
        has_ids: whether sentences have ids.
        n_sentences: number of sentences.
        n_rows: number of rows: one per sentence if pooled, otherwise one per word.
    """

    wanted: Wanted
    shape: tuple[int, ...]
    has_ids: bool
    n_sentences: int
    n_rows: int

    def groups(self, parts: Iterable[Path]) -> Iterator[tuple[list[Record], np.ndarray]]:
        """Yield some sentences at a time, in order, and their rows as a memory map, (rows, ...).

        Raises: DataError for a damaged part.
        """
        row_bytes = bytes_of_row(self.shape, self.wanted.dtype)
        for part in parts:
            records, rows = read_rows(part, self.wanted, self.shape)
            group: list[Record] = []
            begin = end = 0
            for record in records:
                n = self.wanted.n_rows(record)
                if group and (end + n - begin) * row_bytes > GROUP_BYTES:
                    yield group, rows[begin:end]
                    group, begin = [], end
                group.append(record)
                end += n
            yield group, rows[begin:end]


def merge_datasets(merged: Path, parts: Iterable[Path], content: Content | None = None) -> None:
    """Write an HDF5 file with a dataset per sentence, named by its id or else its number."""
    del content
    with NewHDF5(merged) as file:
        pass
    for part in parts:
        # Reopened for each part, because HDF5's memory for an open file grows with its content.
        with NewHDF5(merged, "a") as file, _opened(part) as source:
            for name in sorted(source, key=int):
                id_ = source[name].attrs.get(ID)
                if id_ is not None:
                    file.attrs[BY_ID] = True
                target = name if id_ is None else dataset_name(id_)
                h5py.h5o.copy(source.id, name.encode(), file.id, target.encode())
                file.check()


def write_npz(merged: Path, parts: Iterable[Path], content: Content) -> None:
    """Write `vectors`; the `offsets` of sentences, unless pooled; and the ids."""
    ids: list[str] = []
    n_done = 0
    lengths: np.ndarray = np.zeros(content.n_sentences + 1, np.int64)
    with zipfile.ZipFile(merged, "w") as archive:
        with archive.open("vectors.npy", "w", force_zip64=True) as file:
            shape = (content.n_rows, *content.shape)
            _write_header(file, shape, np.dtype(content.wanted.dtype))
            for records, rows in content.groups(parts):
                file.write(rows.data)
                ids += [record.id for record in records if record.id is not None]
                n_rows = list(map(content.wanted.n_rows, records))
                lengths[n_done + 1 : n_done + 1 + len(records)] = n_rows
                n_done += len(records)
        arrays = {} if content.wanted.pooled else {"offsets": np.cumsum(lengths)}
        if content.has_ids:
            arrays |= _arrays_of_ids(ids)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                _write_header(file, array.shape, array.dtype)
                file.write(array.tobytes())


def _arrays_of_ids(ids: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the arrays that store ids: strings, or bytes and offsets if that is much smaller."""
    encoded = [id_.encode() for id_ in ids]
    offsets: np.ndarray = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    n_bytes_of_strings = 4 * len(ids) * max(map(len, ids), default=1)  # UTF-32 of equal length
    if n_bytes_of_strings <= max(2 * (int(offsets[-1]) + offsets.nbytes), STRINGS_BYTES):
        return {IDS: np.array(ids, str)}
    return {IDS_UTF8: np.frombuffer(b"".join(encoded), np.uint8), IDS_OFFSETS: offsets}


def _write_header(file: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Write the header of an array in NumPy's format."""
    descr = np.lib.format.dtype_to_descr(dtype)
    header = {"descr": descr, "fortran_order": False, "shape": tuple(map(int, shape))}
    np.lib.format.write_array_header_1_0(file, header)


def write_table(merged: Path, parts: Iterable[Path], content: Content) -> None:
    """Write an HDF5 file of pooled vectors: `vectors` (n, ...), `sentences` and `ids`."""
    text, n = h5py.string_dtype(), content.n_sentences
    with NewHDF5(merged) as file:
        vectors = file.create_dataset("vectors", (n, *content.shape), content.wanted.dtype)
        sentences = file.create_dataset("sentences", (n,), text)
        ids = file.create_dataset(IDS, (n,), text) if content.has_ids else None
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
    """Write a Parquet file with a row per sentence: see the module."""
    pyarrow, parquet = _pyarrow(merged)
    schema = _schema(pyarrow, content)
    # Vectors do not compress well, and words are small in comparison.
    how: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    with (
        open(merged, "wb") as file,
        parquet.ParquetWriter(file, schema, write_statistics=False, **how) as writer,
    ):
        for records, rows in content.groups(parts):
            columns = _columns(pyarrow, content, records, rows)
            writer.write_table(pyarrow.table(columns, schema))


def _schema(pyarrow: Any, content: Content) -> Any:
    """Return the names and types of Parquet's columns."""
    kind = {"float32": pyarrow.float32(), "float16": pyarrow.float16()}[content.wanted.dtype]
    vector = pyarrow.list_(kind, content.shape[-1])
    ids = [("id", pyarrow.string())] if content.has_ids else []
    if content.wanted.pooled:
        words, of_layer = ("sentence", pyarrow.string()), vector
    else:
        words, of_layer = ("words", pyarrow.list_(pyarrow.string())), pyarrow.list_(vector)
    return pyarrow.schema([*ids, words, *((name, of_layer) for name in column_names(content))])


def check_names(outfile: str | os.PathLike, content: Content) -> None:
    """Raise OptionsError if two columns of Parquet would have one name."""
    names = column_names(content)
    if format_of(outfile) == "parquet" and len(set(names)) < len(names):
        raise OptionsError(f"layers is {content.wanted.layers!r}: a layer occurs twice")


def column_names(content: Content) -> list[str]:
    """Return the names of Parquet's columns of vectors."""
    if len(content.shape) == 1:
        return ["vector" if content.wanted.pooled else "vectors"]
    numbers = layer_numbers(content.wanted.layers) or range(content.shape[0])  # for "all"
    return [f"layer_{number}" for number in numbers]


def _columns(pyarrow: Any, content: Content, records: list[Record], rows: np.ndarray) -> list:
    """Return Parquet's columns for some sentences."""
    columns: list[Any]
    if content.wanted.pooled:
        columns = [[join_words(record.words) for record in records]]
    else:
        columns = [[record.words for record in records]]
    if content.has_ids:
        columns.insert(0, [record.id for record in records])
    offsets: np.ndarray = np.cumsum([0, *(len(record.words) for record in records)], dtype=np.int32)
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
