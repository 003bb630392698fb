"""Parts of an output: files with the vectors, words and ids of some sentences.

An interrupted run leaves its finished parts in the folder `<outfile>.parts`. A part is HDF5, with a
dataset per sentence, or a `.rows` file: the vectors of all sentences, their words and ids as JSON,
and a trailer. Merging reads nothing but parts.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import h5py
import numpy as np

from bilm.data.readers import Record
from bilm.embedding.collecting import Layers, layer_selector, unit_length
from bilm.embedding.embedding_file import ID, PLACE, SENTENCE, join_words
from bilm.errors import DataError
from bilm.storage.hdf5 import DAMAGE, NewHDF5
from bilm.support.files import (
    LOCK,
    PREFIX,
    beside,
    hold,
    output_path,
    remove_leftovers,
    replacing,
    scratch,
)

if TYPE_CHECKING:  # merging parts does not import TensorFlow
    from bilm.embedding.embedder import ElmoEmbedder

RUN = "run.json"
VERSION = 2  # version of the parts; those of version 1 do not contain words and ids
DIGEST = "digest"  # HDF5 attribute of a part with the digest of its words and ids
TRAILER = struct.Struct("<Q32s8s")  # at the end of `.rows`: bytes of JSON, digest, MAGIC
MAGIC = b"bilmrows"
PART_TOKENS = 1 << 18  # tokens after which a part ends, as many as are packed together


class Parts:
    """The folder `<outfile>.parts` with part files 0, 1, 2, ..., each complete or missing.

    A context manager: inside the block no other process or thread can write the same output.

    Args:
        outfile: the file into which the parts are merged.
        run: the settings that determine the result, by name, as JSON values. An existing folder is
            continued only with the settings that it was created with.
        ending: ending of the names of the parts.
    Raises: on entry, DataError if another process is writing the folder, or if it was created with
        other settings or by an earlier version; OSError if it cannot be written.
    """

    def __init__(self, outfile: str | os.PathLike, run: dict[str, object], ending: str = ".hdf5"):
        self.outfile, self._ending = output_path(outfile), ending
        self._run: dict[str, object] = {"version": VERSION, **run}
        self.folder = beside(self.outfile, ".parts")
        self._lock: int | None = None

    def __enter__(self) -> Parts:
        remove_leftovers(self.outfile)
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / RUN).exists() and self._foreign_files():
            raise DataError(
                f"{self.folder}: not a folder of parts; remove it, or choose another output"
            )
        self._lock = hold(self.folder / LOCK, os.O_CREAT)
        if self._lock is None:
            raise DataError(
                f"{self.folder}: another process is writing {self.outfile}; wait until it ends, "
                "or choose another output"
            )
        try:
            self._check_run()
        except BaseException:
            self._unlock()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._unlock()

    def path(self, part: int) -> Path:
        """Return the path of a part."""
        return self.folder / f"{part:06d}{self._ending}"

    def n_closed(self) -> int:
        """Return the number of parts before the first missing one."""
        n_parts = 0
        while self.path(n_parts).exists():
            n_parts += 1
        return n_parts

    def merge(self, n_parts: int, write: Callable[[Path, list[Path]], None]) -> None:
        """Merge the parts into one file, rename it into place and remove the folder.

        Args:
            n_parts: number of parts.
            write: writes the file; called with its temporary name and the paths of the parts.
        Raises: OSError, naming `outfile`, if it cannot be written; DataError for a damaged part.
        """
        with replacing(self.outfile) as merged:
            write(merged, [self.path(part) for part in range(n_parts)])
        # After a kill, the folder is either complete or among the leftovers that the next run
        # removes.
        with scratch(self.outfile) as folder:
            os.rename(self.folder, folder / "parts")

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _foreign_files(self) -> list[str]:
        """Return the files that a run killed at its start does not leave."""
        names = os.listdir(self.folder)
        return [name for name in names if name != LOCK and not name.startswith(PREFIX)]

    def _check_run(self) -> None:
        """Store the settings in a new folder, or compare them with the stored ones."""
        path = self.folder / RUN
        if not path.exists():
            with replacing(path) as temporary:
                temporary.write_text(json.dumps(self._run), encoding="utf-8")
            return
        try:
            found = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}: damaged ({error}); remove the folder") from error
        if found.get("version") != VERSION:
            raise DataError(
                f"{self.folder}: its parts were written by another version of bilm; remove the "
                "folder and repeat the command"
            )
        other = [name for name in self._run if found.get(name) != self._run[name]]
        if other:
            raise DataError(
                f"{self.folder}: the parts differ from this command in {', '.join(other)}; repeat "
                "the command that wrote them, choose another output, or remove the folder"
            )


class Wanted(NamedTuple):
    """What is stored for each sentence; see `dump_bilm_embeddings` for the values."""

    layers: Layers = "all"
    pool: str = "none"
    normalize: bool = False
    dtype: str = "float32"

    @property
    def pooled(self) -> bool:
        """Whether a sentence has one vector."""
        return self.pool != "none"

    def row_shape(self, n_layers: int, dim: int) -> tuple[int, ...]:
        """Return the shape stored for a word or a pooled sentence: (D,) or (layers, D)."""
        *before, _, dim = layer_selector(self.layers, n_layers)(np.empty((n_layers, 0, dim))).shape
        return (*before, dim)

    def n_rows(self, record: Record) -> int:
        """Return the number of rows of a sentence: 1 if pooled, otherwise its number of words."""
        return 1 if self.pooled else len(record.words)

    def embed(
        self, embedder: ElmoEmbedder, records: Sequence[Record]
    ) -> Generator[tuple[int, np.ndarray], None, None]:
        """Yield number and stored vectors of each sentence as soon as they are computed."""
        sentences = (record.words for record in records)
        with closing(embedder.embed_as_completed(sentences, self.layers, self.pool)) as embedded:
            for number, _, vectors in embedded:
                vectors = unit_length(vectors) if self.normalize else vectors
                yield number, vectors.astype(self.dtype, copy=False)


def in_parts(records: Iterable[Record], max_sentences: int) -> Iterator[list[Record]]:
    """Yield records in parts of `max_sentences` sentences or about `PART_TOKENS` tokens."""
    part: list[Record] = []
    n_tokens = 0
    for record in records:
        part.append(record)
        n_tokens += len(record.words) + 2
        if len(part) >= max_sentences or n_tokens >= PART_TOKENS:
            yield part
            part, n_tokens = [], 0
    if part:
        yield part


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


def stored_digest(part: Path) -> bytes:
    """Return the digest of the words and ids in a part. Raises: DataError if it is damaged."""
    if part.suffix == ".rows":
        return _trailer(part)[1]
    try:
        with h5py.File(part, "r") as file:
            return bytes.fromhex(file.attrs[DIGEST])
    except (*DAMAGE, TypeError) as error:
        raise damaged(part, error) from error


WritePart = Callable[[Path, int, Sequence[Record], "ElmoEmbedder", Wanted], Iterator[Record]]


def write_datasets(
    path: Path, first: int, records: Sequence[Record], embedder: ElmoEmbedder, wanted: Wanted
) -> Iterator[Record]:
    """Write an HDF5 part with a dataset per sentence, named `first`, `first + 1`, ...

    Yields: each record after it has been written.
    """
    with (
        replacing(path) as temporary,
        NewHDF5(temporary) as file,
        closing(wanted.embed(embedder, records)) as embedded,
    ):
        file.attrs[DIGEST] = digest_of(records).hex()
        for number, vectors in embedded:
            record = records[number]
            attributes = file.create_dataset(str(first + number), data=vectors).attrs
            attributes[SENTENCE] = join_words(record.words)
            if record.id is not None:
                attributes[ID], attributes[PLACE] = record.id, first + number
            file.check()
            yield record


def write_rows(
    path: Path, first: int, records: Sequence[Record], embedder: ElmoEmbedder, wanted: Wanted
) -> Iterator[Record]:
    """Write a `.rows` part: the vectors of words, or one per sentence, then words and ids.

    Yields: each record after its vectors have been written.
    """
    del first
    row_bytes = bytes_of_row(wanted.row_shape(embedder.n_layers, embedder.dim), wanted.dtype)
    starts = list(accumulate(map(wanted.n_rows, records), initial=0))
    with (
        replacing(path) as temporary,
        open(temporary, "wb") as file,
        closing(wanted.embed(embedder, records)) as embedded,
    ):
        for number, vectors in embedded:
            if not wanted.pooled and vectors.ndim == 3:
                vectors = vectors.swapaxes(0, 1)  # layers, T, D -> T, layers, D
            file.seek(starts[number] * row_bytes)
            file.write(vectors.tobytes())
            yield records[number]
        file.seek(starts[-1] * row_bytes)
        text = json.dumps(records, ensure_ascii=False).encode()
        file.write(text)
        file.write(TRAILER.pack(len(text), digest_of(records), MAGIC))


def read_rows(
    part: Path, wanted: Wanted, shape: tuple[int, ...]
) -> tuple[list[Record], np.ndarray]:
    """Return the sentences of a `.rows` part, and their rows as a memory map, (rows, ...).

    Raises: DataError if the part is damaged.
    """
    n_bytes, digest = _trailer(part)
    end = part.stat().st_size - TRAILER.size - n_bytes
    try:
        with open(part, "rb") as file:
            file.seek(end)
            records = [Record(words, id_) for words, id_ in json.loads(file.read(n_bytes))]
        found = digest_of(records)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise damaged(part, error) from error
    n_rows = sum(map(wanted.n_rows, records))
    expected = n_rows * bytes_of_row(shape, wanted.dtype)
    if end != expected:
        raise damaged(part, f"{end:,} bytes of vectors, expected {expected:,}")
    if found != digest:
        raise damaged(part, "its words or ids have changed")
    if not n_rows:  # an empty file cannot be mapped
        return records, np.empty((0, *shape), wanted.dtype)
    return records, np.memmap(part, wanted.dtype, "r", shape=(n_rows, *shape))


def _trailer(part: Path) -> tuple[int, bytes]:
    """Return the number of bytes of JSON in a `.rows` part, and its digest."""
    try:
        with open(part, "rb") as file:
            file.seek(-TRAILER.size, os.SEEK_END)
            n_bytes, digest, magic = TRAILER.unpack(file.read())
    except (OSError, struct.error) as error:
        raise damaged(part, error) from error
    if magic != MAGIC or n_bytes > part.stat().st_size - TRAILER.size:
        raise damaged(part, "its end is missing")
    return n_bytes, digest


def bytes_of_row(shape: tuple[int, ...], dtype: str) -> int:
    """Return the number of bytes stored for a word or a pooled sentence."""
    return math.prod(shape) * np.dtype(dtype).itemsize


def damaged(part: Path, reason: object) -> DataError:
    """Return the error for a part that cannot be read."""
    return DataError(f"{part}: damaged ({reason}); remove it and repeat the command")
