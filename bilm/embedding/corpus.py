"""Embeds a corpus into one file of vectors, in parts that survive an interruption.

The corpus is read twice: once to validate and count it, before any work, and once to embed it. The
second reading must return the same words and ids in each part. Parts contain words and ids, so that
merging does not read the corpus.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bilm.data.readers import Corpora, Corpus, Record
from bilm.data.shares import Share, input_files, open_corpus
from bilm.data.tokenization import TokenizationCheck
from bilm.embedding.backends import sooner_backend
from bilm.embedding.embedder import ElmoEmbedder, Layers, check_pool, layer_numbers
from bilm.embedding.embedding_file import dataset_name
from bilm.embedding.outputs import (
    WRITERS,
    Content,
    Parts,
    digest_of,
    format_of,
    open_parts,
    stored_digest,
    write_part,
)
from bilm.errors import DataError, OptionsError
from bilm.storage.finding.download import local_copy
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.files import expanded, sha256_of
from bilm.support.model_files import protect
from bilm.support.progress import progress

DTYPES = ("float32", "float16")
WARM_PARTS = 16  # number of parts after which the cache of token vectors is cleared
PART_SENTENCES, PART_VECTORS = 1000, 100_000  # sentences per part without and with pooling
PART_TOKENS = 1 << 18  # tokens after which a part ends, as many as are packed together


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
    """Embed every sentence of a corpus into one file, in the format of its name: see `outputs`.

    `outfile` is renamed into place when it is complete. Until then, finished parts are in the
    folder `<outfile>.parts`, which grows to the same size. After an interruption, the same call
    continues after the last finished part and produces the same values.

    Args:
        vocab_file, options_file, weight_file, precision: see `ElmoEmbedder`.
        dataset_file: see `bilm.data.readers.Corpus`; empty lines are numbered, too. A pattern
            selects several files, which are read in the order of their names.
        outfile: an existing file is replaced.
        layers: `"all"`, (layers + 1, T, 2 P) per sentence; indices such as `[0, 2]`, (2, T, 2 P);
            `"top"`, `"average"` or `"sum"`, (T, 2 P).
        dtype: `float32` or `float16`.
        part_sentences: sentences per part; an interruption loses at most one part; None
            for 1000, or 100,000 if they are pooled.
        pool, normalize: see `ElmoEmbedder.sentence_vectors`; `none` stores each word's vectors.
        backend: see `ElmoEmbedder`; None for `keras`, or with `before_keras` for the one that
            embeds the corpus sooner.
        before_keras: called before Keras is used for the first time. If it is given and `backend`
            is not, NumPy embeds a short corpus, unless Keras is imported or KERAS_BACKEND is set.
        share: the share of the corpus to embed; None for all of it.
        reading: `column`, `id_column`, `id_field`, `tokenize` and `on_bad_utf8` of `Corpus`.
    Returns: the number of sentences.
    Raises: DataError, OptionsError, WeightsError, also if the corpus changes while it is read or
        if the folder of parts belongs to another call; BilmError if a package is missing;
        ValueError for another dtype or number.
    """
    settings = Settings(layers, dtype, part_sentences, precision, pool, normalize, backend)
    outfile, dataset_file = expanded(outfile), expanded(dataset_file)
    vocab_file = None if vocab_file is None else expanded(local_copy(vocab_file))
    if Path(outfile).is_dir():
        raise DataError(f"{outfile}: is a folder; expected the name of a file to write")
    form = format_of(outfile)
    paths = input_files(dataset_file)
    protect(outfile, *paths, vocab_file)

    text = survey(open_corpus(dataset_file, share, **reading), settings, form)
    model = open_model(options_file, weight_file)
    if before_keras is not None:
        if settings.backend is None:
            n_tokens = text.n_tokens + 2 * text.n_sentences
            settings.backend = sooner_backend(model.options, settings.precision, n_tokens)
        if settings.backend == "keras":
            before_keras()
    work = prepare(text, model, vocab_file, settings, form)
    protect(outfile, *model.own_files)
    with open_parts(outfile, work.run) as parts:
        work.write_parts(parts)
        n_parts = len(text.digests)
        with progress("merging", "parts", n_parts) as shown:
            parts.merge(
                n_parts, lambda path, paths: WRITERS[form](path, shown.over(paths), work.content)
            )
    return text.n_sentences


class Settings:
    """What to compute for each sentence, and how to store it.

    Args:
        layers, dtype, part_sentences, precision, pool, normalize: see `dump_bilm_embeddings`.
        backend: see `ElmoEmbedder`; None for the default.
    Attributes: the arguments, with the number of sentences per part; `is_pooled`.
    Raises: OptionsError for an unknown pool; ValueError for another dtype or number.
    """

    def __init__(
        self,
        layers: Layers = "all",
        dtype: str = "float32",
        part_sentences: int | None = None,
        precision: str = "float32",
        pool: str = "none",
        normalize: bool = False,
        backend: str | None = None,
    ):
        self.is_pooled = pool != "none"
        if part_sentences is None:
            part_sentences = PART_VECTORS if self.is_pooled else PART_SENTENCES
        check_pool(pool, normalize)
        dtype = str(dtype)  # a numpy.dtype is also accepted
        if dtype not in DTYPES or part_sentences < 1:
            raise ValueError(
                f"dtype is {dtype!r}, expected one of {DTYPES}; "
                f"part_sentences is {part_sentences}, expected 1 or more"
            )
        self.layers, self.dtype, self.part_sentences = layers, dtype, part_sentences
        self.precision, self.pool, self.normalize = precision, pool, normalize
        self.backend = backend

    def by_sentence(self, form: str) -> bool:
        """Return whether an output has datasets, named by ids if there are any."""
        return form == "hdf5" and not self.is_pooled

    def identity(self, model: StoredModel, vocab_file: str | Path | None) -> dict[str, object]:
        """Return what determines the vectors of a sentence, by name, as JSON values.

        Call this method before the weights of the model are read.
        """
        vocabulary = model.vocabulary_file(vocab_file)
        layers = self.layers
        return {
            "model": model.digest,
            "precision": self.precision,
            "vocabulary": vocabulary and sha256_of(vocabulary),
            "layers": layers if isinstance(layers, str) else list(map(int, layers)),
            "dtype": self.dtype,
            "pool": self.pool,
            "normalize": self.normalize,
            "part_sentences": self.part_sentences,
        }


def prepare(
    text: Text,
    model: StoredModel,
    vocab_file: str | Path | None,
    settings: Settings,
    form: str,
) -> Work:
    """Load a model and return the work of embedding a corpus with it.

    Args:
        text: the first reading of the corpus.
        model, vocab_file: see `ElmoEmbedder`.
        settings: what to compute.
        form: format of the output.
    Raises: WeightsError if the model changes; OptionsError if a layer is missing or occurs twice.
    """
    identity = settings.identity(model, vocab_file)  # before the weights are read
    run = {"model": identity.pop("model"), "precision": identity.pop("precision")}
    run |= {"dataset": text.digest, **identity}
    backend = settings.backend or "keras"
    embedder = ElmoEmbedder(model, None, vocab_file, precision=settings.precision, backend=backend)
    model.check_unchanged()
    embedder.tokenization.done = True  # the survey has checked the corpus
    shape = embedder.selection(settings.layers).shape
    numbers: Sequence[int] = []
    if len(shape) > 1:
        numbers = layer_numbers(settings.layers) or range(shape[0])  # for "all"
    if form == "parquet" and len(set(numbers)) < len(numbers):
        raise OptionsError(f"layers is {settings.layers!r}: a layer occurs twice")
    content = Content(
        shape=shape,
        dtype=settings.dtype,
        is_pooled=settings.is_pooled,
        by_sentence=settings.by_sentence(form),
        layers=list(numbers),
        has_ids=text.corpus.has_ids,
        n_sentences=text.n_sentences,
        n_rows=text.n_sentences if settings.is_pooled else text.n_tokens,
    )
    return Work(text, content, embedder, settings, run)


class Work(NamedTuple):
    """A corpus to embed and everything that is required for it.

    Fields:
        text: the corpus.
        content: the content of the output.
        embedder: the model.
        settings: what to compute.
        run: the settings that determine the result, for `open_parts`.
    """

    text: Text
    content: Content
    embedder: ElmoEmbedder
    settings: Settings
    run: dict[str, object]

    def write_parts(self, parts: Parts) -> None:
        """Write the missing parts; check that the others contain the same words and ids.

        Raises: DataError if they do not, or if the corpus has changed.
        """
        text, embedder, settings = self.text, self.embedder, self.settings
        n_closed = parts.n_closed()
        if n_closed:
            logging.info("%s: continuing after %d finished parts", parts.folder, n_closed)
        for part, digest in enumerate(text.digests[:n_closed]):
            if stored_digest(parts.path(part)) != digest:
                raise DataError(
                    f"{parts.path(part)}: contains other sentences than the corpus, which changed "
                    "while it was read; remove the folder and repeat the command"
                )
        with progress("embedding", "tokens", text.n_tokens) as shown:
            for part, records in enumerate(text.read_again(parts.folder)):
                if part % WARM_PARTS == 0:
                    embedder.clear_cache()
                sentences = (record.words for record in records)
                if part >= n_closed:
                    how = settings.layers, settings.pool, settings.normalize
                    with closing(embedder.embed_as_completed(sentences, *how)) as embedded:
                        path = parts.path(part)
                        for record in write_part(path, records, embedded, self.content):
                            shown.add(len(record.words))
                    continue
                shown.skip(sum(len(record.words) for record in records))
                if part >= n_closed - n_closed % WARM_PARTS:
                    # Fill the cache as the interrupted command did, so that vectors are
                    # bit-identical.
                    embedder.warm_up(sentences, settings.layers, settings.pool)


class Text(NamedTuple):
    """The first reading of a corpus: counts, and the digest of each part's words and ids."""

    corpus: Corpus | Corpora
    part_sentences: int
    n_sentences: int
    n_tokens: int
    digests: list[bytes]

    @property
    def digest(self) -> str:
        """The SHA-256 of all words and ids and their division into parts."""
        return hashlib.sha256(b"".join(self.digests)).hexdigest()

    def read_again(self, folder: Path) -> Iterator[list[Record]]:
        """Yield the parts of the corpus, each after comparing it with the first reading.

        Raises: DataError, naming the folder of parts, if the corpus has changed.
        """
        first = 1
        again = _in_parts(self.corpus, self.part_sentences)
        for digest, records in zip_longest(self.digests, again):
            if records is None or digest is None or digest_of(records) != digest:
                raise DataError(
                    f"{self.corpus.path}: changed while it was read, at sentence {first} or after "
                    f"it; restore it to continue, or remove {folder} and repeat the command"
                )
            yield records
            first += len(records)


def survey(corpus: Corpus | Corpora, settings: Settings, form: str) -> Text:
    """Read a corpus, so that errors in it are found before the work starts.

    Args:
        corpus: the corpus.
        settings: what to compute.
        form: format of the output.
    Raises: DataError for an error in the corpus, and for equal ids.
    """
    name_of = dataset_name if settings.by_sentence(form) else str
    part_sentences = settings.part_sentences
    n_sentences = n_tokens = 0
    digests: list[bytes] = []
    ids = array("Q")  # 8 bytes per id
    check = TokenizationCheck(corpus.path)
    check.done = not corpus.is_text
    with progress("counting", "sentences") as shown:
        for part in _in_parts(corpus, part_sentences):
            shown.add(len(part))
            digests.append(digest_of(part))
            for words, id_ in part:
                n_sentences += 1
                n_tokens += len(words)
                check.add(words)
                refuse_tabs(words, f"{corpus.path}, record {n_sentences}")
                if id_ is not None:
                    ids.append(short_name(name_of(id_)))
    check.warn()
    refuse_equal_names(corpus, corpus.path, ids, name_of)
    return Text(corpus, part_sentences, n_sentences, n_tokens, digests)


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
    if "\t" in (line := "\t".join(words)) and line.count("\t") >= len(words):
        odd = next(word for word in words if "\t" in word)
        raise DataError(
            f"{where}: the word {odd[:40]!r} contains a tab; expected words without tabs"
        )


def refuse_equal_names(
    records: Iterable[Record], where: str, ids: array[int], name_of: Callable[[str], str]
) -> None:
    """Raise DataError, with the ids and their positions, if two have the same name in the output.

    Args:
        records: the records; read once more if two names seem to be equal.
        where: the corpus, for the message.
        ids: the result of `short_name` for the name of each id.
        name_of: returns the name of an id in the output.
    """
    digests, counts = np.unique(np.frombuffer(ids, np.uint64), return_counts=True)
    suspects = set(digests[counts > 1].tolist())
    seen: dict[str, tuple[int, str]] = {}
    for number, record in enumerate(records if suspects else (), start=1):
        id_ = record.id or ""
        if short_name(name := name_of(id_)) not in suspects:
            continue
        before, other = seen.setdefault(name, (number, id_))
        if before < number:
            found = f"both have the id {id_!r}"
            if other != id_:
                found = f"have the ids {other!r} and {id_!r}, which both become {name!r} in HDF5"
            raise DataError(f"{where}: records {before} and {number} {found}; ids must be unique")


def short_name(name: str) -> int:
    """Return 8 bytes of a digest of a name, as an integer."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
