"""Embeds a corpus into one file of vectors, in parts that survive an interruption.

The corpus is read twice: to validate and count it, and to embed it. A part is a file in the format
of the output, in the folder `<outfile>.parts`. Its name contains a digest of its sentences and of
everything that determines its values, so only the same part is used again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from absl import logging

from bilm.data.profile import Profile, TextSigns
from bilm.data.readers import Corpus, Reading, Record
from bilm.data.text import input_files
from bilm.data.vocabulary import Vocabulary
from bilm.embedding import embedding_file, writers
from bilm.embedding.collecting import Layers
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.forms import PARTS, Share
from bilm.errors import DataError, require_one_of
from bilm.inference.backend import chosen_backend
from bilm.storage.finding.download import local_copy
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support import files
from bilm.support.progress import Progress
from bilm.tensors import n_parameters

DTYPES = ("float32", "float16")
WARM_PARTS = 8  # number of parts after which the cache of token vectors is cleared
PART_TOKENS = 1 << 18  # most tokens of a part, as many as are packed together
PART_WORK = 4_000_000_000_000  # most tokens x weights of a part: half a minute on two cores
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
    before_keras: Callable[[], None] = lambda: None,
    share: Share | None = None,
    **reading: Any,
) -> int:
    """Embed every sentence of a corpus into one file, in the format of its name: see `writers`.

    After an interruption, the same call continues after the last finished part and produces the
    same values: see the module.

    Args:
        vocab_file, options_file, weight_file, layers, precision: see `ElmoEmbedder`.
        dataset_file: see `bilm.data.readers.Corpus`; empty lines are numbered, too. A pattern
            selects several files, which are read in the order of their names.
        outfile: an existing file is replaced.
        dtype: `float32` or `float16`.
        part_sentences: most sentences of a part; an interruption loses at most one part, which
            takes about half a minute on two cores.
        pool, normalize: see `ElmoEmbedder.sentence_vectors`; `none` stores each word's vectors.
        backend: see `ElmoEmbedder`; None for the one that embeds the corpus sooner.
        before_keras: called before Keras or TensorFlow is imported.
        share: the share of the corpus to embed; None for the whole corpus.
        reading: fields of `Reading`, such as `column`.
    Returns: the number of sentences.
    Raises: DataError, also if another process writes the same output; OptionsError; WeightsError,
        also if the model changes meanwhile; BilmError if a package is missing; ValueError.
    """
    dtype = str(dtype)  # a numpy.dtype is also accepted
    require_one_of("dtype", dtype, DTYPES)
    outfile = files.expanded(outfile)
    dataset_file = files.expanded(dataset_file)
    if vocab_file is not None:
        vocab_file = files.expanded(local_copy(vocab_file))
    writer = writers.writer_class(outfile)
    model = open_model(options_file, weight_file)
    if model.needs_tensorflow:
        before_keras()
    files.protect(outfile, *input_files(dataset_file), vocab_file, *model.own_files)

    # The text.
    vocab_path = Path(vocab_file or model.vocabulary_path)
    known = Vocabulary(vocab_path) if vocab_path.is_file() else ()
    corpus = Corpora(dataset_file, Reading(**reading), share, known, model.profile)
    n_sentences, n_tokens = read_first(corpus, writer)

    # The embedder.
    backend = chosen_backend(model, n_tokens + 2 * n_sentences, backend, precision)
    if backend == "keras" and precision != "int8":
        before_keras()
    vocabulary = model.vocabulary_file(vocab_file)
    vocabulary_digest = None if vocabulary is None else files.sha256_of(vocabulary)
    settings = VERSION, model.digest, vocabulary_digest, precision, backend
    embedder = ElmoEmbedder(model, None, vocab_file, precision=precision, backend=backend)
    model.check_unchanged()
    embedder.signs.done = True  # the first reading has examined the corpus

    # The vectors.
    if not isinstance(layers, str):
        layers = list(map(int, layers))
    vectors = layers, pool, normalize
    selection = embedder.selection(*vectors)
    is_pooled = pool != "none"
    content = writers.Content(selection.shape, dtype, is_pooled, selection.numbers, corpus.has_ids)
    max_tokens = min(PART_WORK // n_parameters(model.options), PART_TOKENS)
    in_parts = _in_parts(corpus, max_tokens, part_sentences or max_tokens)
    with open_parts(outfile, content, (*settings, *vectors)) as parts:
        bar = Progress("embedding", "tokens", n_tokens)
        _write_parts(parts, in_parts, embedder, vectors, bar)
        parts.merge()
    return parts.n_sentences


def _write_parts(
    parts: Parts,
    corpus: Iterable[list[Record]],
    embedder: ElmoEmbedder,
    vectors: tuple[Layers, str, bool],
    bar: Progress,
) -> None:
    layers, pool, _ = vectors
    existing: list[list[Record]] = []  # since the cache was cleared
    for number, records in enumerate(corpus):
        if number % WARM_PARTS == 0:
            embedder.clear_cache()
            existing.clear()
        path = parts.next_path(records)
        if path.exists():
            parts.add(path, records)
            existing.append(records)
            bar.skip(sum(len(record.words) for record in records))
            continue

        # Fill the cache as an interrupted command did, so that vectors are bit-identical.
        if existing:
            logging.info("%s: continuing after %d finished parts", parts.folder, number)
        for before in existing:
            embedder.warm_up((record.words for record in before), layers, pool)
        existing.clear()

        sentences = (record.words for record in records)
        with (
            closing(embedder.embed_as_completed(sentences, *vectors)) as embedded,
            parts.writing(path, records) as out,
        ):
            for k, words, vectors_of_words in embedded:
                out.add(parts.n_sentences + k, records[k], vectors_of_words)
                del vectors_of_words  # a view: see `embed_as_completed`
                bar.add(len(words))
        parts.add(path, records)


# --- reading the corpus ---


class Corpora:
    """The records of all files that a pattern matches, or a share: see `Corpus` and `TextSigns`.

    Attributes: `path`, the name of the whole, for messages; `has_ids`.
    Raises: DataError as `input_files` and `Corpus` do, and if only some files have ids.
    """

    def __init__(
        self,
        pattern: str | os.PathLike,
        reading: Reading | None = None,
        share: Share | None = None,
        vocabulary: Container[str] = (),
        of_model: Profile | None = None,
    ):
        signs = TextSigns(pattern, vocabulary=vocabulary, of_model=of_model)
        self._corpora = [Corpus(path, reading, signs) for path in input_files(pattern)]
        self.path = os.fspath(pattern) if len(self._corpora) > 1 else self._corpora[0].path
        self.has_ids = any(corpus.has_ids for corpus in self._corpora)
        for corpus in self._corpora:
            if corpus.has_ids != self.has_ids:
                raise DataError(
                    f"{corpus.path}: its sentences have no ids, but other files of {self.path} "
                    "have ids; expected files of the same form"
                )

        # A share is a range of the records, which are counted first.
        self._first = 0
        self._end: int | None = None
        if share is not None:
            counted = Progress("counting", "sentences")
            n_records = sum(1 for _ in counted.over(self))
            self._first = n_records * share.number // share.n
            self._end = n_records * (share.number + 1) // share.n
            self.path += f" (share {share.number} of {share.n})"

    def __iter__(self) -> Iterator[Record]:
        return islice(chain.from_iterable(self._corpora), self._first, self._end)


def read_first(corpus: Corpora, writer: type[writers.Writer]) -> tuple[int, int]:
    """Return the numbers of sentences and tokens of a corpus. Raises: DataError for an error in it,
    and for ids with equal names in the output."""
    n_sentences = n_tokens = 0
    names: set[int] = set()
    counted = Progress("counting", "sentences")
    for words, id_, *_ in counted.over(corpus):
        n_sentences += 1
        n_tokens += len(words)
        where = f"{corpus.path}, record {n_sentences}"
        embedding_file.refuse_tabs(words, where)
        if id_ is None:
            continue
        name = hash(writer.name_of(id_))
        if name in names:
            raise DataError(
                f"{where}: the id {id_!r} occurs before, or becomes the same name in the "
                "output as an id before; ids must be unique"
            )
        names.add(name)
    return n_sentences, n_tokens


def _in_parts(
    corpus: Iterable[Record], max_tokens: int, max_sentences: int
) -> Iterator[list[Record]]:
    """Yield records in parts of about `max_tokens` tokens or `max_sentences` sentences."""
    part: list[Record] = []
    n_tokens = 0
    for record in corpus:
        part.append(record)
        n_tokens += len(record.words) + 2
        if len(part) >= max_sentences or n_tokens >= max_tokens:
            yield part
            part = []
            n_tokens = 0
    if part:
        yield part


# --- parts ---


@dataclass
class Parts:
    """The parts of an output, in order; see `open_parts`."""

    outfile: str | os.PathLike  # the file or URL into which the parts are merged
    folder: Path
    content: writers.Content
    settings: Sequence[object]  # everything else that determines the values, as JSON values
    paths: list[Path] = field(default_factory=list)  # of the finished parts
    n_sentences: int = 0  # of these parts
    n_rows: int = 0  # of these parts

    def next_path(self, records: Sequence[Record]) -> Path:
        """Return the path of the part that follows the finished ones and contains these records."""
        text = json.dumps([self.settings, self.content, self.n_sentences, records])
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        ending = Path(self.outfile).suffix.lower()
        return self.folder / f"{len(self.paths):06d}-{digest}{ending}"

    @contextmanager
    def writing(self, path: Path, records: Sequence[Record]) -> Iterator[writers.Writer]:
        """Open the writer of the next part for the block."""
        n_rows = self.content.n_rows(records)
        with (
            files.replacing(path) as temporary,
            self._writer(temporary, self.n_sentences, n_rows) as out,
        ):
            yield out

    def add(self, path: Path, records: Sequence[Record]) -> None:
        """Count a finished part."""
        self.paths.append(path)
        self.n_sentences += len(records)
        self.n_rows += self.content.n_rows(records)

    def merge(self) -> None:
        """Merge the parts into the output, rename it into place and remove the folder. Raises:
        OSError; DataError for a damaged part or if the upload fails."""
        with files.replacing(self.outfile) as merged:
            if len(self.paths) == 1:
                os.replace(self.paths[0], merged)
            else:
                merging = Progress("merging", "parts", len(self.paths))
                with self._writer(merged, 0, self.n_rows) as out:
                    for path in merging.over(self.paths):
                        out.append(path)
        # After a kill, the folder is either complete or among the leftovers that the next run
        # removes.
        with files.scratch(self.outfile) as folder:
            os.rename(self.folder, folder / "parts")

    def _writer(self, path: Path, first: int, n_rows: int) -> closing[writers.Writer]:
        writer = writers.writer_class(self.outfile)
        return closing(writer(path, self.content, first, n_rows))


@contextmanager
def open_parts(
    outfile: str | os.PathLike, content: writers.Content, settings: Sequence[object]
) -> Iterator[Parts]:
    """Open the folder `<outfile>.parts`, for a URL in the working folder. In the block, no other
    process can write the same output. Raises: DataError, OSError."""
    target = files.output_path(outfile)
    folder = files.beside(target, PARTS)
    files.remove_leftovers(target)
    folder.mkdir(parents=True, exist_ok=True)
    known = re.compile(rf"\d{{6}}-[0-9a-f]{{32}}\..*|{re.escape(files.PREFIX)}.*|{files.LOCK}")
    for name in os.listdir(folder):
        if not known.fullmatch(name):
            raise DataError(
                f"{folder}: contains {name!r}, expected parts of {target.name} only; remove the "
                "folder, or choose another output"
            )
    lock = files.try_lock(folder / files.LOCK)
    if lock is None:
        raise DataError(
            f"{folder}: another process is writing {target}; wait until it ends, or choose another "
            "output"
        )
    with lock:
        try:
            yield Parts(outfile, folder, content, settings)
        except BaseException:
            if os.listdir(folder) == [files.LOCK]:  # no part is finished
                shutil.rmtree(folder, ignore_errors=True)
            raise
