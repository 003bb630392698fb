"""Embeds a corpus into one file of vectors, in parts that survive an interruption.

The corpus is read twice: once to validate and count it, before any work, and once to embed it. A
part is a file in the format of the output, in the folder `<outfile>.parts`. Its name contains a
digest of its sentences and of everything that determines its values, so only the same part is used
again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from bilm.data.readers import Corpora, Corpus, Record, Share, input_files, open_corpus
from bilm.embedding.choices import PARTS
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.embedding_file import dataset_name
from bilm.embedding.selection import Layers
from bilm.embedding.writers import (
    Content,
    HDF5Writer,
    ParquetWriter,
    Span,
    Writer,
    parquet_schema,
    writer_class,
)
from bilm.errors import DataError
from bilm.inference.backend import sooner_backend
from bilm.storage.finding.download import local_copy
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support import files
from bilm.support.progress import progress

DTYPES = ("float32", "float16")
WARM_PARTS = 16  # number of parts after which the cache of token vectors is cleared
PART_SENTENCES, PART_VECTORS = 1000, 100_000  # sentences per part without and with pooling
PART_TOKENS = 1 << 18  # tokens after which a part ends, as many as are packed together
VERSION = 4  # of the parts


def dump_bilm_embeddings(
    vocab_file: str | Path | None,
    dataset_file: str | Path,
    options_file: str | Path | StoredModel,
    weight_file: str | Path | None,
    outfile: str | Path,
    layers: Layers = "all",
    dtype: str = "float32",
    part_sentences: int | None = None,
    precision: str = "float32",
    pool: str = "none",
    normalize: bool = False,
    backend: str | None = None,
    before_keras: Callable[[], None] | None = None,
    share: Share | None = None,
    **reading: Any,
) -> int:
    """Embed every sentence of a corpus into one file, in the format of its name: see `writers`.

    `outfile` is renamed into place when it is complete. Until then, finished parts are in the
    folder `<outfile>.parts`. After an interruption, the same call continues after the last finished
    part and produces the same values.

    Args:
        vocab_file, options_file, weight_file, precision: see `ElmoEmbedder`.
        dataset_file: see `bilm.data.readers.Corpus`; empty lines are numbered, too. A pattern
            selects several files, which are read in the order of their names.
        outfile: an existing file is replaced.
        layers: see `ElmoEmbedder`.
        dtype: `float32` or `float16`.
        part_sentences: sentences per part; an interruption loses at most one part; None
            for 1000, or 100,000 if they are pooled.
        pool, normalize: see `ElmoEmbedder.sentence_vectors`; `none` stores each word's vectors.
        backend: see `ElmoEmbedder`; None for `keras`, or with `before_keras` for the one that
            embeds the corpus sooner.
        before_keras: called before Keras is used for the first time.
        share: the share of the corpus to embed; None for all of it.
        reading: `column`, `id_column`, `id_field`, `tokenize` and `on_bad_utf8` of `Corpus`.
    Returns: the number of sentences.
    Raises: DataError, also if another process writes the same output; OptionsError; WeightsError,
        also if the model changes meanwhile; BilmError if a package is missing; ValueError.
    """
    dtype, is_pooled = str(dtype), pool != "none"  # a numpy.dtype is also accepted
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}, expected one of {DTYPES}")
    outfile, dataset_file = files.expanded(outfile), files.expanded(dataset_file)
    vocab_file = None if vocab_file is None else files.expanded(local_copy(vocab_file))
    writer, model = writer_class(outfile), open_model(options_file, weight_file)
    files.protect(outfile, *input_files(dataset_file), vocab_file, *model.own_files)

    # The text.
    corpus = open_corpus(dataset_file, share, **reading)
    n_sentences, n_tokens = read_first(corpus, dataset_name if writer is HDF5Writer else str)

    # The backend.
    if before_keras is not None and backend is None:
        backend = sooner_backend(model.options, n_tokens + 2 * n_sentences, precision)
    backend = backend or "keras"
    if before_keras is not None and backend == "keras":
        before_keras()
    vocabulary = model.vocabulary_file(vocab_file)
    settings = VERSION, model.digest, vocabulary and files.sha256_of(vocabulary), precision, backend
    embedder = ElmoEmbedder(model, None, vocab_file, precision=precision, backend=backend)
    model.check_unchanged()
    embedder.signs.done = True  # the first reading has examined the corpus

    # The writer.
    selection = embedder.selection(layers, pool, normalize)
    content = Content(selection.shape, dtype, is_pooled, selection.numbers, corpus.has_ids)
    if writer is ParquetWriter:
        parquet_schema(content)  # refuses a layer that occurs twice
    how = layers if isinstance(layers, str) else list(map(int, layers)), pool, normalize
    size = part_sentences or (PART_VECTORS if is_pooled else PART_SENTENCES)
    with open_parts(outfile, writer, content, (*settings, *how)) as parts:
        with progress("embedding", "tokens", n_tokens) as shown:
            _write_parts(parts, _in_parts(corpus, size), embedder, how, shown)
        parts.merge()
    return parts.n_sentences


def _write_parts(
    parts: Parts,
    corpus: Iterable[list[Record]],
    embedder: ElmoEmbedder,
    how: tuple[Layers, str, bool],
    shown: Any,
) -> None:
    """Write the parts that do not exist."""
    existing: list[list[Record]] = []  # since the cache was cleared
    for number, records in enumerate(corpus):
        if number % WARM_PARTS == 0:
            embedder.clear_cache()
            existing.clear()
        if parts.has(records):
            existing.append(records)
            shown.skip(sum(len(record.words) for record in records))
            continue
        if existing:
            logging.info("%s: continuing after %d finished parts", parts.folder, number)
        for before in existing:
            # Fill the cache as an interrupted command did, so that vectors are bit-identical.
            embedder.warm_up((record.words for record in before), *how[:2])
        existing.clear()
        sentences = (record.words for record in records)
        with closing(embedder.embed_as_completed(sentences, *how)) as embedded:
            for record in parts.write(records, embedded):
                shown.add(len(record.words))


# --- reading the corpus ---


def read_first(corpus: Corpus | Corpora, name_of: Callable[[str], str]) -> tuple[int, int]:
    """Read a corpus, so that errors in it are found before the work starts; return the numbers of
    sentences and tokens.

    Raises: DataError for an error in the corpus, and for ids with equal names in the output.
    """
    n_sentences = n_tokens = 0
    names: set[int] = set()
    with progress("counting", "sentences") as shown:
        for words, id_, *_ in corpus:
            shown.add(1)
            n_sentences += 1
            n_tokens += len(words)
            refuse_tabs(words, f"{corpus.path}, record {n_sentences}")
            if id_ is not None:
                if (name := hash(name_of(id_))) in names:
                    raise DataError(
                        f"{corpus.path}, record {n_sentences}: the id {id_!r} occurs before, or "
                        "becomes the same name in the output as an id before; ids must be unique"
                    )
                names.add(name)
    return n_sentences, n_tokens


def _in_parts(corpus: Iterable[Record], max_sentences: int) -> Iterator[list[Record]]:
    """Yield records in parts of `max_sentences` sentences or about `PART_TOKENS` tokens."""
    part: list[Record] = []
    n_tokens = 0
    for record in corpus:
        part.append(record)
        n_tokens += len(record.words) + 2
        if len(part) >= max_sentences or n_tokens >= PART_TOKENS:
            yield part
            part, n_tokens = [], 0
    if part:
        yield part


def refuse_tabs(words: Sequence[str], where: str) -> None:
    """Raise DataError if a word contains a tab, which separates words in files of embeddings."""
    if odd := next((word for word in words if "\t" in word), None):
        raise DataError(
            f"{where}: the word {odd[:40]!r} contains a tab; expected words without tabs"
        )


# --- parts ---


@dataclass
class Parts:
    """The parts of an output, in order; see `open_parts`."""

    outfile: str | os.PathLike  # the file or URL into which the parts are merged
    folder: Path
    writer: type[Writer]  # the format of the parts and of the output
    content: Content
    settings: Sequence[object]  # everything else that determines the values, as JSON values
    n_sentences: int = 0  # of the parts that were written or exist
    n_rows: int = 0
    paths: list[Path] = field(default_factory=list)

    def has(self, records: Sequence[Record]) -> bool:
        """Return whether the next part exists; it is then used."""
        path = self._path(records)
        if exists := path.exists():
            self._add(path, records)
        return exists

    def write(
        self, records: Sequence[Record], embedded: Iterable[tuple[int, list[str], np.ndarray]]
    ) -> Iterator[Record]:
        """Write the next part from the number, words and vectors of each record, in any order;
        yield each record after its vectors have been added."""
        path = self._path(records)
        span = Span(self.n_sentences, self._rows_of(records))
        with files.replacing(path) as new, closing(self.writer(new, self.content, span)) as out:
            for number, _, vectors in embedded:
                out.add(number, records[number], vectors)
                yield records[number]
        self._add(path, records)

    def merge(self) -> None:
        """Merge the parts into the output, rename it into place and remove the folder.

        Raises: OSError, naming `outfile`; DataError for a damaged part or if the upload fails.
        """
        with files.replacing(self.outfile) as merged:
            if len(self.paths) == 1:
                os.replace(self.paths[0], merged)
            else:
                out = self.writer(merged, self.content, Span(0, self.n_rows))
                with closing(out), progress("merging", "parts", len(self.paths)) as shown:
                    for path in shown.over(self.paths):
                        _append(out, path)
        # After a kill, the folder is either complete or among the leftovers that the next run
        # removes.
        with files.scratch(self.outfile) as folder:
            os.rename(self.folder, folder / "parts")

    def _add(self, path: Path, records: Sequence[Record]) -> None:
        self.paths.append(path)
        self.n_sentences += len(records)
        self.n_rows += self._rows_of(records)

    def _rows_of(self, records: Sequence[Record]) -> int:
        is_pooled = self.content.is_pooled
        return len(records) if is_pooled else sum(len(record.words) for record in records)

    def _path(self, records: Sequence[Record]) -> Path:
        """Return the path of the next part."""
        text = json.dumps([self.settings, self.content, self.n_sentences, records])
        digest, ending = hashlib.sha256(text.encode()).hexdigest(), Path(self.outfile).suffix
        return self.folder / f"{len(self.paths):06d}-{digest[:32]}{ending.lower()}"


def _append(out: Writer, part: Path) -> None:
    try:
        out.append(part)
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, OSError) and error.errno:  # of the output's disk
            raise
        raise DataError(f"{part}: damaged ({error}); remove it and repeat the command") from error


@contextmanager
def open_parts(
    outfile: str | os.PathLike, writer: type[Writer], content: Content, settings: Sequence[object]
) -> Iterator[Parts]:
    """Open the folder `<outfile>.parts`, for a URL in the working folder; in the block no other
    process can write the same output. Args: see `Parts`.

    Raises: DataError if another process is writing the folder; OSError if it cannot be written.
    """
    target = files.output_path(outfile)
    folder = files.beside(target, PARTS)
    files.remove_leftovers(target)
    folder.mkdir(parents=True, exist_ok=True)
    known = re.compile(rf"\d{{6}}-[0-9a-f]{{32}}\..*|{re.escape(files.PREFIX)}.*|{files.LOCK}")
    if foreign := [name for name in os.listdir(folder) if not known.fullmatch(name)]:
        raise DataError(
            f"{folder}: contains {foreign[0]!r}, expected parts of {target.name} only; remove the "
            "folder, or choose another output"
        )
    lock = files.try_lock(folder / files.LOCK)
    if lock is None:
        raise DataError(
            f"{folder}: another process is writing {target}; wait until it ends, or choose another "
            "output"
        )
    with lock:
        yield Parts(outfile, folder, writer, content, settings)
