"""Embeds a corpus into one file of vectors, in parts that survive an interruption.

The corpus is read twice: once to validate and count it, before any work, and once to embed it. The
    second reading must return the same words and ids in each part. Parts contain words and ids, so
    that
merging does not read the corpus.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bilm.data.readers import Corpus, Record
from bilm.data.shards import require_files
from bilm.data.tokenization import TokenizationCheck
from bilm.embedding import outputs
from bilm.embedding.collecting import Layers, check_pool
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.embedding_file import dataset_name
from bilm.embedding.outputs import Content
from bilm.embedding.parts import (
    Parts,
    Wanted,
    WritePart,
    digest_of,
    in_parts,
    stored_digest,
    write_datasets,
    write_rows,
)
from bilm.errors import DataError
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.files import expanded, sha256_of
from bilm.support.model_files import protect
from bilm.support.progress import Progress, progress

DTYPES = ("float32", "float16")
WARM_PARTS = 16  # number of parts after which the cache of token vectors is cleared
PART_SENTENCES, PART_VECTORS = 1000, 100_000  # sentences per part without and with pooling


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
    **reading: Any,
) -> int:
    """Embed every sentence of a corpus into one file, in the format of its name: see `outputs`.

    `outfile` is renamed into place when it is complete. Until then, finished parts are in the
    folder `<outfile>.parts`, which grows to the same size. After an interruption, the same call
    continues after the last finished part and produces the same values.

    Args:
        vocab_file, options_file, weight_file, precision: see `ElmoEmbedder`.
        dataset_file: see `bilm.data.readers.Corpus`; empty lines are numbered, too.
        outfile: an existing file is replaced.
        layers: `"all"`, (layers + 1, T, 2 P) per sentence; indices such as `[0, 2]`, (2, T, 2 P);
            `"top"`, `"average"` or `"sum"`, (T, 2 P).
        dtype: `float32` or `float16`.
        part_sentences: sentences per part; an interruption loses at most one part; None
            for 1000, or 100,000 if they are pooled.
        pool, normalize: see `ElmoEmbedder.sentence_vectors`; `none` stores each word's vectors.
        reading: `column`, `id_column`, `id_field`, `tokenize` and `on_bad_utf8` of `Corpus`.
    Returns: the number of sentences.
    Raises: DataError, OptionsError, WeightsError, also if the corpus changes while it is read or
        if the folder of parts belongs to another call; BilmError if a package is missing;
        ValueError for another dtype or number.
    """
    wanted = Wanted(layers, pool, normalize, str(dtype))  # NumPy's own dtype has this name
    if part_sentences is None:
        part_sentences = PART_VECTORS if wanted.pooled else PART_SENTENCES
    _check_values(wanted, part_sentences)
    outfile, dataset_file = expanded(outfile), expanded(dataset_file)
    vocab_file = expanded(vocab_file)
    _check_files(outfile, dataset_file, vocab_file)
    corpus = Corpus(dataset_file, **reading)
    text = _survey(corpus, part_sentences, _naming(outfile, wanted))
    model = open_model(options_file, weight_file)
    run = {"model": model.digest, "precision": precision}  # before the weights are read
    embedder = ElmoEmbedder(model, None, vocab_file, precision=precision)
    model.check_unchanged()
    content = _content(corpus, wanted, text, embedder)
    run |= _settings(wanted, part_sentences, text, embedder)
    protect(outfile, *model.own_files)
    outputs.check_names(outfile, content)
    embedder.tokenization.done = True  # the survey has checked the corpus
    _embed(corpus, content, text, embedder, outfile, run, part_sentences)
    return text.n_sentences


def _content(corpus: Corpus, wanted: Wanted, text: _Text, embedder: ElmoEmbedder) -> Content:
    """Return the content of the output. Raises: OptionsError for layers that do not exist."""
    shape = wanted.row_shape(embedder.n_layers, embedder.dim)
    n_rows = text.n_sentences if wanted.pooled else text.n_tokens
    return Content(wanted, shape, corpus.has_ids, text.n_sentences, n_rows)


def _settings(
    wanted: Wanted, part_sentences: int, text: _Text, embedder: ElmoEmbedder
) -> dict[str, Any]:
    """Return the settings that determine the parts, by name."""
    layers, pool, normalize, dtype = wanted
    return {
        "dataset": text.digest,
        "vocabulary": embedder.vocab_file and sha256_of(embedder.vocab_file),
        "layers": layers if isinstance(layers, str) else list(map(int, layers)),
        **{"dtype": dtype, "pool": pool, "normalize": normalize},
        "part_sentences": part_sentences,
    }


def _embed(
    corpus: Corpus,
    content: Content,
    text: _Text,
    embedder: ElmoEmbedder,
    outfile: str,
    run: dict[str, Any],
    part_sentences: int,
) -> None:
    """Write a corpus part by part, then merge all parts into one file."""
    by_sentence = _by_sentence(outfile, content.wanted)
    n_parts = len(text.digests)
    with Parts(outfile, run, ".hdf5" if by_sentence else ".rows") as parts:
        with progress("embedding", "tokens", text.n_tokens) as shown:
            write = write_datasets if by_sentence else write_rows
            read = _unchanged(corpus, part_sentences, text.digests, parts.folder)
            _write_parts(parts, read, text.digests, embedder, content.wanted, write, shown)
        with progress("merging", "parts", n_parts) as shown:
            table = outputs.WRITERS[outputs.format_of(outfile)]
            merge = outputs.merge_datasets if by_sentence else table
            parts.merge(n_parts, lambda path, paths: merge(path, shown.over(paths), content))


def _by_sentence(outfile: str, wanted: Wanted) -> bool:
    """Return whether each sentence is an HDF5 dataset, named by its id if it has one."""
    return outputs.format_of(outfile) == "hdf5" and not wanted.pooled


def _naming(outfile: str, wanted: Wanted) -> Callable[[str], str]:
    """Return the function from an id to the name that must be unique in the output."""
    return dataset_name if _by_sentence(outfile, wanted) else str


def _unchanged(
    corpus: Corpus, part_sentences: int, digests: Sequence[bytes], folder: Path
) -> Iterator[list[Record]]:
    """Yield the parts of a corpus, each after comparing it with the first reading.

    Raises: DataError if the corpus has changed.
    """
    first = 1
    for digest, records in zip_longest(digests, in_parts(corpus, part_sentences)):
        if records is None or digest is None or digest_of(records) != digest:
            raise DataError(
                f"{corpus.path}: changed while it was read, at sentence {first} or after it; "
                f"restore it to continue, or remove {folder} and repeat the command"
            )
        yield records
        first += len(records)


def _write_parts(
    parts: Parts,
    read: Iterable[list[Record]],
    digests: Sequence[bytes],
    embedder: ElmoEmbedder,
    wanted: Wanted,
    write: WritePart,
    shown: Progress,
) -> None:
    """Write the missing parts; check that the others contain the same words and ids."""
    n_closed, first = parts.n_closed(), 0
    if n_closed:
        logging.info("%s: continuing after %d finished parts", parts.folder, n_closed)
    for part in range(min(n_closed, len(digests))):
        if stored_digest(parts.path(part)) != digests[part]:
            raise DataError(
                f"{parts.path(part)}: contains other sentences than the corpus, which changed "
                "while it was read; remove the folder and repeat the command"
            )
    for part, records in enumerate(read):
        if part % WARM_PARTS == 0:
            embedder.clear_cache()
        if part >= n_closed:
            for record in write(parts.path(part), first, records, embedder, wanted):
                shown.add(len(record.words))
        else:
            shown.skip(sum(len(record.words) for record in records))
            if part >= n_closed - n_closed % WARM_PARTS:
                # Fill the cache as the interrupted run did, so that vectors are equal to the bit.
                sentences = (record.words for record in records)
                embedder.warm_up(sentences, wanted.layers, wanted.pool)
        first += len(records)


def _check_values(wanted: Wanted, part_sentences: int) -> None:
    check_pool(wanted.pool, wanted.normalize)
    if (dtype := wanted.dtype) not in DTYPES or part_sentences < 1:
        raise ValueError(
            f"dtype is {dtype!r}, expected one of {DTYPES}; "
            f"part_sentences is {part_sentences}, expected 1 or more"
        )


def _check_files(outfile: str, dataset_file: str, vocab_file: str | None) -> None:
    if Path(outfile).is_dir():
        raise DataError(f"{outfile}: is a folder; expected the name of a file to write")
    outputs.check_output(outfile)
    require_files([dataset_file])
    protect(outfile, dataset_file, vocab_file)


class _Text(NamedTuple):
    """The first reading of a corpus: counts, and the digest of each part's words and ids."""

    n_sentences: int
    n_tokens: int
    digests: list[bytes]

    @property
    def digest(self) -> str:
        """The SHA-256 of all words and ids and their division into parts."""
        return hashlib.sha256(b"".join(self.digests)).hexdigest()


def _survey(corpus: Corpus, part_sentences: int, name_of: Callable[[str], str]) -> _Text:
    """Read a corpus, so that errors in it are found before the work starts.

    `name_of` returns the name of an id in the output.
    """
    n_sentences = n_tokens = 0
    digests: list[bytes] = []
    ids = _Ids(name_of)
    check = TokenizationCheck(corpus.path)
    check.done = not corpus.form.is_text
    with progress("counting", "sentences") as shown:
        for part in in_parts(corpus, part_sentences):
            shown.add(len(part))
            digests.append(digest_of(part))
            for words, id_ in part:
                n_sentences += 1
                n_tokens += len(words)
                check.add(words)
                _refuse_tabs(words, f"{corpus.path}, record {n_sentences}")
                if id_ is not None:
                    ids.add(id_)
    check.warn()
    ids.check(corpus)
    return _Text(n_sentences, n_tokens, digests)


def _refuse_tabs(words: Sequence[str], where: str) -> None:
    """Raise DataError if a word contains a tab, which separates words in files of embeddings."""
    if "\t" in (line := "\t".join(words)) and line.count("\t") >= len(words):
        odd = next(word for word in words if "\t" in word)
        raise DataError(
            f"{where}: the word {odd[:40]!r} contains a tab; expected words without tabs"
        )


class _Ids:
    """Finds ids that have the same name in the output, with 8 bytes of memory per id."""

    def __init__(self, name_of: Callable[[str], str]):
        self._name_of, self._digests = name_of, array("Q")

    def add(self, id_: str) -> None:
        """Add an id."""
        self._digests.append(_short(self._name_of(id_)))

    def check(self, corpus: Corpus) -> None:
        """Raise DataError, with the ids and their positions, if two have the same name."""
        digests, counts = np.unique(np.frombuffer(self._digests, np.uint64), return_counts=True)
        suspects = set(digests[counts > 1].tolist())
        seen: dict[str, tuple[int, str]] = {}
        for number, record in enumerate(corpus if suspects else (), start=1):
            id_ = record.id or ""
            if _short(name := self._name_of(id_)) not in suspects:
                continue
            before, other = seen.setdefault(name, (number, id_))
            if before < number:
                found = f"both have the id {id_!r}"
                if other != id_:
                    found = (
                        f"have the ids {other!r} and {id_!r}, which both become {name!r} in HDF5"
                    )
                raise DataError(
                    f"{corpus.path}: records {before} and {number} {found}; ids must be unique"
                )


def _short(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
