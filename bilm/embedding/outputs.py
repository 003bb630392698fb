"""The files that `bilm embed` writes: parts that survive an interruption, merged into one output.

An interrupted command leaves its finished parts in the folder `<outfile>.parts`. A part contains
the vectors of some sentences, their words and ids as JSON, and a trailer with checksums. Merging
reads only parts.
The ending of the output's name determines its format:

- HDF5: sentence i, counted from 0, is the dataset `"i"`, with its words in the attribute
  `sentence`. If sentences have ids, the datasets are named by them, with _ instead of /, and have
  the attribute `id`. Pooled vectors are one dataset `vectors` (n, ...), with `sentences` and `ids`.
- `.npz`: `vectors`, of all words (N, ...) or pooled (n, ...); `offsets`, integer (n + 1,):
  sentence i has the rows `vectors[offsets[i] : offsets[i + 1]]`; `ids`, strings (n,). If an array
  of strings would be much larger than the ids, because one of them is long, there are instead
  `ids_utf8`, uint8, and `ids_offsets`, integer (n + 1,): `bilm.read_ids` reads both. The axis of
  layers, if there is one, is the second.
- `.parquet`: a row per sentence with its `id`, its `words` and a column `vectors` or, for several
  layers, `layer_0`, `layer_1`, ...; if pooled, with the columns `id`, `sentence` (its words as
  text), and `vector`, or `layer_0`, `layer_1`, ...
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import h5py
import numpy as np

from bilm.data.readers import Record
from bilm.embedding.choices import FORMATS
from bilm.embedding.embedding_file import (
    BY_ID,
    ID,
    IDS,
    IDS_OFFSETS,
    IDS_UTF8,
    PLACE,
    SENTENCE,
    dataset_name,
    join_words,
)
from bilm.errors import DataError, OptionsError
from bilm.storage.hdf5 import NewHDF5
from bilm.support.files import (
    LOCK,
    PREFIX,
    beside,
    output_path,
    remove_leftovers,
    replacing,
    scratch,
    try_lock,
)
from bilm.support.imports import optional
from bilm.support.remote import writing
from bilm.support.urls import is_url

RUN = "run.json"
VERSION = 3  # version of the parts; those of version 2 do not contain a checksum of the vectors
TRAILER = struct.Struct("<QQ32s8s")  # at a part's end: bytes of JSON, checksum, digest, MAGIC
MAGIC = b"bilmrows"
GROUP_BYTES = 1 << 26  # vectors written at a time, a row group of Parquet
STRINGS_BYTES = 1 << 20  # an array of strings may always be this large


class Content(NamedTuple):
    """The content of an output.

    Fields:
        shape: shape of a row, (D,) or (layers, D).
        dtype: `float32` or `float16`.
        is_pooled: whether a sentence has one row; otherwise it has one per word.
        by_sentence: whether the output has a dataset per sentence, (layers, T, D); its parts then
            contain the bytes of these arrays, and otherwise of (T, layers, D).
        layers: numbers of the layers in a row; empty if it has one layer.
        has_ids: whether sentences have ids.
        n_sentences: number of sentences.
        n_rows: number of rows of all sentences.
    """

    shape: tuple[int, ...]
    dtype: str
    is_pooled: bool
    by_sentence: bool
    layers: Sequence[int]
    has_ids: bool
    n_sentences: int
    n_rows: int

    @property
    def row_bytes(self) -> int:
        """The number of bytes of a row."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def rows_of(self, record: Record) -> int:
        """Return the number of rows of a sentence."""
        return 1 if self.is_pooled else len(record.words)

    def groups(self, parts: Iterable[Path]) -> Iterator[tuple[list[Record], np.ndarray]]:
        """Yield some sentences at a time, in order, and their rows, (rows, ...).

        Raises: DataError for a damaged part.
        """
        for part in parts:
            records, number, checksum = read_records(part, self), 0, 0
            with open(part, "rb") as file:
                for group in self._grouped(records):
                    ends = list(accumulate(map(self.rows_of, group), initial=0))
                    rows = self._read_rows(file, ends[-1])
                    for start, end in pairwise(ends):
                        checksum += _checksum(number, rows[start:end])
                        number += 1
                    yield group, rows
            if checksum != _trailer(part).checksum:
                raise _damaged(part, "its vectors have changed")

    def _grouped(self, records: Iterable[Record]) -> Iterator[list[Record]]:
        """Split sentences into groups of at most `GROUP_BYTES`, if a sentence is not larger."""
        group: list[Record] = []
        n_rows, most = 0, GROUP_BYTES // self.row_bytes
        for record in records:
            n = self.rows_of(record)
            if group and n_rows + n > most:
                yield group
                group, n_rows = [], 0
            group.append(record)
            n_rows += n
        yield group

    def _read_rows(self, file: BinaryIO, n: int) -> np.ndarray:
        numbers = np.fromfile(file, self.dtype, n * math.prod(self.shape))
        return numbers.reshape(n, *self.shape)


# --- parts ---


class Parts(NamedTuple):
    """The parts 0, 1, 2, ... of an output in a folder, each complete or missing; see `open_parts`.

    Fields:
        outfile: the file or URL into which the parts are merged.
        folder: the folder of the parts.
    """

    outfile: str | Path
    folder: Path

    def path(self, part: int) -> Path:
        """Return the path of a part."""
        return self.folder / f"{part:06d}.rows"

    def n_closed(self) -> int:
        """Return the number of parts before the first missing one."""
        n_parts = 0
        while self.path(n_parts).exists():
            n_parts += 1
        return n_parts

    def merge(self, n_parts: int, write: Callable[[Any, list[Path]], None]) -> None:
        """Merge the parts into one file, rename it into place and remove the folder.

        A Parquet file of a URL is uploaded while it is written, so that it needs no space on the
        local disk. Other formats require seeking and are uploaded when they are complete.

        Args:
            n_parts: number of parts.
            write: writes the file; called with its temporary name, or for a Parquet file of a URL
                with a file that is open for writing, and with the paths of the parts.
        Raises: OSError, naming `outfile`, if it cannot be written; DataError for a damaged part or
            if the upload fails.
        """
        url = self.outfile
        is_streamed = is_url(url) and FORMATS.get(Path(url).suffix.lower()) == "parquet"
        with writing(str(url)) if is_streamed else replacing(url) as merged:
            write(merged, [self.path(part) for part in range(n_parts)])
        self.remove()

    def remove(self) -> None:
        """Remove the folder."""
        # After a kill, the folder is either complete or among the leftovers that the next run
        # removes.
        with scratch(self.outfile) as folder:
            os.rename(self.folder, folder / "parts")


@contextmanager
def open_parts(outfile: str | os.PathLike, run: dict[str, object]) -> Iterator[Parts]:
    """Open the folder `<outfile>.parts`; in the block no other process can write the same output.

    For a URL, the folder is in the working folder; its name contains a digest of the URL.

    Args:
        outfile: the file into which the parts are merged.
        run: the settings that determine the result, by name, as JSON values. An existing folder is
            continued only with the settings that it was created with.
    Raises: DataError if another process is writing the folder, or if it was created with other
        settings or by an earlier version; OSError if it cannot be written.
    """
    target = output_path(outfile)
    folder = beside(target, ".parts")
    remove_leftovers(target)
    folder.mkdir(parents=True, exist_ok=True)
    # A command that is killed at its start leaves only the lock and temporary folders.
    foreign = [n for n in os.listdir(folder) if n != LOCK and not n.startswith(PREFIX)]
    if foreign and not (folder / RUN).exists():
        raise DataError(f"{folder}: not a folder of parts; remove it, or choose another output")
    lock = try_lock(folder / LOCK)
    if lock is None:
        raise DataError(
            f"{folder}: another process is writing {target}; wait until it ends, or choose another "
            "output"
        )
    with lock:
        _check_run(folder, {"version": VERSION, **run})
        yield Parts(outfile if is_url(outfile) else target, folder)


def _check_run(folder: Path, run: dict[str, object]) -> None:
    """Store the settings in a new folder, or compare them with the stored ones."""
    path = folder / RUN
    if not path.exists():
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(run), encoding="utf-8")
        return
    try:
        found = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: damaged ({error}); remove the folder") from error
    if found.get("version") != VERSION:
        raise DataError(
            f"{folder}: its parts were written by another version of bilm; remove the folder and "
            "repeat the command"
        )
    other = [name for name in run if found.get(name) != run[name]]
    if other:
        raise DataError(
            f"{folder}: the parts differ from this command in {', '.join(other)}; repeat the "
            "command that wrote them, choose another output, or remove the folder"
        )


def digest_of(records: Iterable[Record]) -> bytes:
    """Return the SHA-256 of the words and ids of sentences.

    Different sentences have different digests if no word contains a tab.
    """
    digest = hashlib.sha256()
    for words, id_ in records:
        # FE and FF do not occur in UTF-8: FE marks an id, FF replaces a line feed in a word or id.
        line = f"{len(words)}\t" + "\t".join(words)
        digest.update(line.encode().replace(b"\n", b"\xff") + b"\n")
        if id_ is not None:
            digest.update(b"\xfe" + id_.encode().replace(b"\n", b"\xff") + b"\n")
    return digest.digest()


def write_part(
    path: Path,
    records: Sequence[Record],
    embedded: Iterable[tuple[int, list[str], np.ndarray]],
    content: Content,
) -> Iterator[Record]:
    """Write a part: the vectors of words, or one per sentence, then words and ids.

    Args:
        embedded: number, words and vectors of each record, in any order.
    Yields: each record after its vectors have been written.
    """
    n_rows = map(content.rows_of, records)
    starts = [n * content.row_bytes for n in accumulate(n_rows, initial=0)]
    checksum = 0
    with replacing(path) as temporary, open(temporary, "wb") as file:
        for number, _, vectors in embedded:
            if vectors.ndim == 3 and not content.by_sentence:
                vectors = vectors.swapaxes(0, 1)  # layers, T, D -> T, layers, D
            stored = np.ascontiguousarray(vectors, content.dtype)
            checksum += _checksum(number, stored)
            file.seek(starts[number])
            file.write(stored.data)
            yield records[number]
        file.seek(starts[-1])
        text = json.dumps(records, ensure_ascii=False).encode()
        file.write(text)
        file.write(TRAILER.pack(len(text), checksum, digest_of(records), MAGIC))


def read_records(part: Path, content: Content) -> list[Record]:
    """Return the sentences of a part; its rows are at its start.

    Raises: DataError if the part is damaged.
    """
    n_bytes, _, digest = _trailer(part)
    end = part.stat().st_size - TRAILER.size - n_bytes
    try:
        with open(part, "rb") as file:
            file.seek(end)
            records = [Record(words, id_) for words, id_ in json.loads(file.read(n_bytes))]
        found = digest_of(records)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise _damaged(part, error) from error
    expected = sum(map(content.rows_of, records)) * content.row_bytes
    if end != expected:
        raise _damaged(part, f"{end:,} bytes of vectors, expected {expected:,}")
    if found != digest:
        raise _damaged(part, "its words or ids have changed")
    return records


def stored_digest(part: Path) -> bytes:
    """Return the digest of the words and ids in a part. Raises: DataError if it is damaged."""
    return _trailer(part).digest


class _Trailer(NamedTuple):
    """The end of a part: number of bytes of JSON, checksum of the vectors, digest of the rest."""

    n_bytes: int
    checksum: int
    digest: bytes


def _checksum(number: int, vectors: np.ndarray) -> int:
    """Return the CRC-32 of the vectors of sentence `number` of a part.

    The checksum of a part is the sum over its sentences, which may be written in any order.
    """
    return zlib.crc32(vectors.data, number)


def _trailer(part: Path) -> _Trailer:
    try:
        with open(part, "rb") as file:
            file.seek(-TRAILER.size, os.SEEK_END)
            n_bytes, checksum, digest, magic = TRAILER.unpack(file.read())
    except (OSError, struct.error) as error:
        raise _damaged(part, error) from error
    if magic != MAGIC or n_bytes > part.stat().st_size - TRAILER.size:
        raise _damaged(part, "its end is missing")
    return _Trailer(n_bytes, checksum, digest)


def _damaged(part: Path, reason: object) -> DataError:
    return DataError(f"{part}: damaged ({reason}); remove it and repeat the command")


# --- the formats of outputs ---


def format_of(outfile: str | os.PathLike) -> str:
    """Return the format of an output, by its ending: `npz`, `parquet` or `hdf5`.

    Raises: OptionsError if the ending is unknown; BilmError if its package is not installed.
    """
    ending = Path(outfile).suffix
    if ending.lower() not in FORMATS:
        found = f"unknown ending {ending!r}" if ending else "a name without an ending"
        raise OptionsError(f"{outfile}: {found}; expected one of {', '.join(FORMATS)}")
    if FORMATS[ending.lower()] == "parquet":
        _pyarrow(outfile)
    return FORMATS[ending.lower()]


def _pyarrow(outfile: str | os.PathLike) -> tuple[Any, Any]:
    names = ("pyarrow", "pyarrow.parquet")
    arrow, parquet = (optional(name, "parquet", f"{outfile}: Parquet") for name in names)
    return arrow, parquet


def write_hdf5(merged: Path, parts: Iterable[Path], content: Content) -> None:
    """Write an HDF5 file: pooled vectors as one dataset, or a dataset per sentence."""
    (_write_datasets if content.by_sentence else _write_pooled)(merged, parts, content)


def _write_datasets(merged: Path, parts: Iterable[Path], content: Content) -> None:
    """Write a dataset per sentence, named by its id or else its number."""
    with NewHDF5(merged) as file:
        if content.has_ids:
            file.attrs[BY_ID] = True
    number = 0
    for part in parts:
        # Reopened for each part, because HDF5's memory for an open file grows with its content.
        with NewHDF5(merged, "a") as file:
            for records, rows in content.groups([part]):
                start = 0
                for words, id_ in records:
                    vectors = rows[start : start + len(words)]
                    vectors = vectors.reshape(*content.shape[:-1], len(words), content.shape[-1])
                    start += len(words)
                    name = str(number) if id_ is None else dataset_name(id_)
                    attributes = file.create_dataset(name, data=vectors).attrs
                    attributes[SENTENCE] = join_words(words)
                    if id_ is not None:
                        attributes[ID], attributes[PLACE] = id_, number
                    file.check()
                    number += 1


def _write_pooled(merged: Path, parts: Iterable[Path], content: Content) -> None:
    """Write pooled vectors: `vectors` (n, ...), `sentences` and `ids`."""
    text, n = h5py.string_dtype(), content.n_sentences
    with NewHDF5(merged) as file:
        vectors = file.create_dataset("vectors", (n, *content.shape), content.dtype)
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


def write_npz(merged: Path, parts: Iterable[Path], content: Content) -> None:
    """Write `vectors`; the `offsets` of sentences, unless pooled; and the ids."""
    ids: list[str] = []
    lengths = [0]
    with zipfile.ZipFile(merged, "w") as archive:
        with archive.open("vectors.npy", "w", force_zip64=True) as file:
            _write_header(file, (content.n_rows, *content.shape), np.dtype(content.dtype))
            for records, rows in content.groups(parts):
                file.write(rows.data)
                ids += [record.id for record in records if record.id is not None]
                lengths += [len(record.words) for record in records]
        arrays = {} if content.is_pooled else {"offsets": np.cumsum(lengths, dtype=np.int64)}
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


def write_parquet(merged: Path | BinaryIO, parts: Iterable[Path], content: Content) -> None:
    """Write a Parquet file with a row per sentence: see the module.

    `merged` may also be a file that is open for writing and cannot seek.
    """
    pyarrow, parquet = _pyarrow("output")
    schema = parquet_schema(content)
    # Vectors do not compress well, and words are small in comparison.
    how: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    with (
        open(merged, "wb") if isinstance(merged, Path) else nullcontext(merged) as file,
        parquet.ParquetWriter(file, schema, write_statistics=False, **how) as writer,
    ):
        for records, rows in content.groups(parts):
            columns = parquet_columns(content, records, rows)
            writer.write_table(pyarrow.table(columns, schema))


def parquet_ids(path: Path) -> Iterator[str]:
    """Yield the ids of a Parquet file that `write_parquet` has written."""
    _, parquet = _pyarrow(path)
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["id"]):
            yield from batch.column("id").to_pylist()


def parquet_schema(content: Content) -> Any:
    """Return the `pyarrow.Schema` of a Parquet file: see the module."""
    pyarrow, _ = _pyarrow("output")
    kind = {"float32": pyarrow.float32(), "float16": pyarrow.float16()}[content.dtype]
    vector = pyarrow.list_(kind, content.shape[-1])
    fields = [("id", pyarrow.string())] if content.has_ids else []
    if content.is_pooled:
        fields.append(("sentence", pyarrow.string()))
    else:
        fields.append(("words", pyarrow.list_(pyarrow.string())))
        vector = pyarrow.list_(vector)
    names = [f"layer_{number}" for number in content.layers]
    names = names or ["vector" if content.is_pooled else "vectors"]
    return pyarrow.schema([*fields, *((name, vector) for name in names)])


def parquet_columns(content: Content, records: Sequence[Record], rows: np.ndarray) -> list[Any]:
    """Return the columns of `parquet_schema` for some sentences, Arrow arrays.

    Args:
        content: the content of the output.
        records: the sentences.
        rows: their rows, (rows, ...).
    """
    pyarrow, _ = _pyarrow("output")
    texts, words = pyarrow.string(), pyarrow.list_(pyarrow.string())
    columns: list[Any] = []
    if content.has_ids:
        columns.append(pyarrow.array([record.id for record in records], texts))
    if content.is_pooled:
        columns.append(pyarrow.array([join_words(record.words) for record in records], texts))
    else:
        columns.append(pyarrow.array([list(record.words) for record in records], words))
    offsets: np.ndarray = np.cumsum([0, *(len(record.words) for record in records)], dtype=np.int32)
    for values in [rows] if rows.ndim == 2 else rows.swapaxes(0, 1):
        flat = pyarrow.array(np.ascontiguousarray(values).reshape(-1))
        vectors = pyarrow.FixedSizeListArray.from_arrays(flat, content.shape[-1])
        if not content.is_pooled:
            vectors = pyarrow.ListArray.from_arrays(pyarrow.array(offsets), vectors)
        columns.append(vectors)
    return columns


WRITERS = {"hdf5": write_hdf5, "npz": write_npz, "parquet": write_parquet}
