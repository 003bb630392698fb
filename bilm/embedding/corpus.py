"""Whole corpora -> one file of vectors, in parts that survive an interruption."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bilm.data.records import Corpus, Record
from bilm.data.shards import require_files
from bilm.data.tokenization_check import TokenizationCheck
from bilm.embedding import outputs
from bilm.embedding.collecting import Layers, check_pool
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.embedding_file import dataset_name
from bilm.embedding.outputs import Content
from bilm.embedding.part_files import Wanted, WritePart, in_parts, write_datasets, write_rows
from bilm.embedding.parts import Parts
from bilm.errors import DataError
from bilm.files import expanded, keep_inputs, sha256_of
from bilm.progress import Progress, progress
from bilm.storage.formats.checkpoint import newest
from bilm.storage.formats.known import is_run, model_files
from bilm.storage.locate import resolve

DTYPES = ("float32", "float16")
WARM_PARTS = 16  # parts through which the cache of token vectors is kept
PART_SENTENCES, PART_VECTORS = 1000, 100_000  # of a part: sentences, or those with one vector


def dump_bilm_embeddings(
    vocab_file: str | Path | None,
    dataset_file: str | Path,
    options_file: str | Path,
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
    """Embed every sentence of a corpus into one file, whose name says its format: see `outputs`.

    `outfile` comes into being whole, at the end. Until then closed parts are in `<outfile>.parts`,
    which grows as large; the same call continues after the last of them, to the same values.

    Args:
        vocab_file, options_file, weight_file, precision: see `ElmoEmbedder`.
        dataset_file: see `bilm.data.records.Corpus`; an empty line keeps its number.
        outfile: replaced if it is there.
        layers: `"all"`, (layers + 1, T, 2 P) a sentence; indices such as `[0, 2]`, (2, T, 2 P);
            `"top"`, `"average"` or `"sum"`, (T, 2 P).
        dtype: `float32` or `float16`.
        part_sentences: sentences of a part, the most that an interruption can cost; None for 1000,
            or 100,000 that are pooled.
        pool, normalize: see `ElmoEmbedder.sentence_vectors`; `none` stores each word's vectors.
        reading: `column`, `id_column`, `id_field`, `tokenize` and `on_bad_utf8` of `Corpus`.
    Returns: the number of sentences.
    Raises: DataError, OptionsError, WeightsError, also if the folder of parts belongs to another
        call; BilmError if a package is missing; ValueError for another dtype or number.
    """
    wanted = Wanted(layers, pool, normalize, str(dtype))  # NumPy's own dtype has this name
    if part_sentences is None:
        part_sentences = PART_VECTORS if wanted.pooled else PART_SENTENCES
    _check_values(wanted, part_sentences)
    outfile, dataset_file, vocab_file = map(expanded, (outfile, dataset_file, vocab_file))
    _check_files(outfile, dataset_file, vocab_file)
    corpus = Corpus(dataset_file, **reading)
    text = _survey(corpus, part_sentences, _naming(outfile, wanted))
    files = _pinned(*resolve(expanded(options_file), expanded(weight_file)))
    embedder = ElmoEmbedder(*files, vocab_file, precision=precision)
    content = _content(corpus, wanted, part_sentences, text, embedder)
    run = _settings(content, text, embedder) | {"precision": precision}
    keep_inputs(outfile, *model_files(embedder.options_file, embedder.weight_file))
    outputs.check_names(outfile, content)
    _embed(content, text, embedder, outfile, run)
    return text.n_sentences


def _pinned(options_file: Path, weight_file: Path) -> tuple[Path, Path]:
    """Name one checkpoint of a run's folder: what continues this call must read the same."""
    return options_file, newest(weight_file) if is_run(weight_file) else weight_file


def _content(
    corpus: Corpus, wanted: Wanted, part_sentences: int, text: _Text, embedder: ElmoEmbedder
) -> Content:
    """Return what the output holds. Raises: OptionsError for layers that are not there."""
    shape = wanted.row_shape(embedder.n_layers, embedder.dim)
    n_rows = text.n_sentences if wanted.pooled else text.n_tokens
    return Content(corpus, wanted, part_sentences, shape, text.n_sentences, n_rows)


def _settings(content: Content, text: _Text, embedder: ElmoEmbedder) -> dict[str, Any]:
    """Return what shapes the parts, by name: a continued call must have the same."""
    layers, pool, normalize, dtype = content.wanted
    files = model_files(embedder.options_file, embedder.weight_file)
    return {
        "dataset": text.digest,
        "options": sha256_of(files[0]),
        "weights": sha256_of(files[1]),
        "vocabulary": embedder.vocab_file and sha256_of(embedder.vocab_file),
        "layers": layers if isinstance(layers, str) else list(map(int, layers)),
        **{"dtype": dtype, "pool": pool, "normalize": normalize},
        "part_sentences": content.part_sentences,
        **{path.name: sha256_of(path) for path in files[2:]},
    }


def _embed(
    content: Content, text: _Text, embedder: ElmoEmbedder, outfile: str, run: dict[str, Any]
) -> None:
    """Write a corpus part by part, then all parts into one file."""
    by_sentence = _by_sentence(outfile, content.wanted)
    with Parts(outfile, run, ".hdf5" if by_sentence else ".rows") as parts:
        with progress("embedding", "tokens", text.n_tokens) as shown:
            write = write_datasets if by_sentence else write_rows
            _write_parts(parts, content, embedder, write, shown)
        with progress("merging", "parts", text.n_parts) as shown:
            table = outputs.WRITERS[outputs.format_of(outfile)]
            merge = outputs.merge_datasets if by_sentence else table
            parts.merge(text.n_parts, lambda path, paths: merge(path, shown.over(paths), content))


def _by_sentence(outfile: str, wanted: Wanted) -> bool:
    """Return whether each sentence is a dataset of HDF5, named by its id where it has one."""
    return outputs.format_of(outfile) == "hdf5" and not wanted.pooled


def _naming(outfile: str, wanted: Wanted) -> Callable[[str], str]:
    """Return what turns an id into the name that must be its own: only datasets change it."""
    return dataset_name if _by_sentence(outfile, wanted) else str


def _write_parts(
    parts: Parts, content: Content, embedder: ElmoEmbedder, write: WritePart, shown: Progress
) -> None:
    """Write the parts that are not there yet."""
    n_closed, first = parts.n_closed(), 0
    if n_closed:
        logging.info("%s: %d parts are there already", parts.folder, n_closed)
    for part, records in enumerate(in_parts(content.corpus, content.part_sentences)):
        if part % WARM_PARTS == 0:
            embedder.clear_cache()
        if part >= n_closed:
            for record in write(parts.path(part), first, records, embedder, content.wanted):
                shown.add(len(record.words))
        else:
            shown.skip(sum(len(record.words) for record in records))
            if part >= n_closed - n_closed % WARM_PARTS:
                # The vectors of words that the interrupted run kept: to the bit, not just nearly.
                sentences = (record.words for record in records)
                embedder.warm_up(sentences, content.wanted.layers, content.wanted.pool)
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
        raise DataError(f"{outfile}: a folder; expected the name of a file to write")
    outputs.require_packages(outfile)
    require_files([dataset_file])
    keep_inputs(outfile, dataset_file, vocab_file)


class _Text(NamedTuple):
    n_sentences: int
    n_tokens: int
    n_parts: int
    digest: str


def _survey(corpus: Corpus, part_sentences: int, name_of: Callable[[str], str]) -> _Text:
    """Count a corpus and digest its words: what is wrong with it shows before the work starts.

    `name_of` turns an id into the name that the output keeps it by.
    """
    n_sentences = n_tokens = n_parts = 0
    digest, ids = hashlib.sha256(), _Ids(name_of)
    records: Iterable[Record] = corpus
    if corpus.is_text:
        records = _watched(corpus)
    with progress("counting", "sentences") as shown:
        for part in in_parts(records, part_sentences):
            n_parts += 1
            shown.add(len(part))
            for record in part:
                n_sentences += 1
                n_tokens += len(record.words)
                digest.update(_digestible(record.words, f"{corpus.path}, record {n_sentences}"))
                if record.id is not None:
                    digest.update(record.id.encode() + b"\n")
                    ids.add(record.id)
    ids.check(corpus)
    return _Text(n_sentences, n_tokens, n_parts, digest.hexdigest())


def _digestible(words: list[str], where: str) -> bytes:
    """Return bytes that no other words have. Raises: DataError if a word holds a tab.

    A tab separates the words that files of embeddings keep, so the words read would be others.
    """
    line = "\t".join(words)
    if line.count("\t") > max(len(words) - 1, 0):
        odd = next(word for word in words if "\t" in word)
        raise DataError(f"{where}: the word {odd[:40]!r} holds a tab; expected words without tabs")
    if words == [""]:
        return b"\xfe\n"  # as a line it would be that of no words; UTF-8 has neither FE nor FF
    return line.encode().replace(b"\n", b"\xff") + b"\n"


def _watched(corpus: Corpus) -> Iterator[Record]:
    """Pass records on, and warn if their text is not tokenized."""
    check = TokenizationCheck()
    for record in corpus:
        check.add(record.words)
        yield record
    check.warn(corpus.path)


class _Ids:
    """Tells ids that are there twice by the names that the output has for them, in 8 bytes each."""

    def __init__(self, name_of: Callable[[str], str]):
        self._name_of, self._digests = name_of, array("Q")

    def add(self, id_: str) -> None:
        """Take an id."""
        self._digests.append(_short(self._name_of(id_)))

    def check(self, corpus: Corpus) -> None:
        """Raise DataError, with the ids and their places, if two have one name."""
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
                    found = f"have the ids {other!r} and {id_!r}, for HDF5 both {name!r}"
                raise DataError(
                    f"{corpus.path}: records {before} and {number} {found}; "
                    "expected another for each"
                )


def _short(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
