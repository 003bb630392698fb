"""Whole corpora -> HDF5, a dataset a sentence, in parts that survive an interruption."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from absl import logging

from bilm.data.shards import Shards, require_files
from bilm.data.tokenization_check import watched
from bilm.embedding.embedder import ElmoEmbedder, Layers, layer_selector
from bilm.embedding.embedding_file import SENTENCE, join_words
from bilm.embedding.parts import Parts
from bilm.errors import DataError
from bilm.files import expanded, keep_inputs, replacing
from bilm.storage.formats.known import model_files
from bilm.storage.hdf5 import NewHDF5

DTYPES = ("float32", "float16")
WARM_PARTS = 16  # parts through which the cache of token vectors is kept
LOG_SECONDS = 5


def dump_bilm_embeddings(
    vocab_file: str | Path | None,
    dataset_file: str | Path,
    options_file: str | Path,
    weight_file: str | Path | None,
    outfile: str | Path,
    layers: Layers = "all",
    dtype: str = "float32",
    part_sentences: int = 1000,
    precision: str = "float32",
    on_bad_utf8: str = "error",
) -> int:
    """Embed every sentence of a corpus into one HDF5 file.

    Sentence i, counted from 0, is the dataset `"i"`, its words the attribute `sentence`; every
    sentence starts afresh. `outfile` comes into being whole, at the end. Until then closed parts
    stand in the folder `<outfile>.parts`, and the same call continues after the last of them, to
    the same values. At the end the folder takes as much room as the file.

    Args:
        vocab_file: one word a line, for a model that reads words; None does for characters.
        dataset_file: see `read_corpus`; an empty line keeps its number.
        options_file, weight_file: see `ElmoEmbedder`.
        outfile: replaced if it is there.
        layers: `"all"`, (layers + 1, T, 2 P) a sentence; indices such as `[0, 2]`, (2, T, 2 P);
            `"top"` or `"average"`, (T, 2 P), as AllenNLP's `elmo` command writes them.
        dtype: `float32` or `float16`.
        precision: see `ElmoEmbedder`.
        part_sentences: sentences of a part, the most that an interruption can cost.
        on_bad_utf8: see `bilm.data.shards.Shards`.
    Returns: the number of sentences.
    Raises: DataError, OptionsError, WeightsError, also if the folder of parts belongs to another
        call; ValueError for another dtype or number.
    """
    _check_numbers(dtype, part_sentences)
    outfile, dataset_file, vocab_file = map(expanded, (outfile, dataset_file, vocab_file))
    _check_files(outfile, dataset_file, vocab_file)
    corpus = Shards([dataset_file], on_bad_utf8)
    text = _survey(corpus)
    embedder = ElmoEmbedder(options_file, weight_file, vocab_file, precision=precision)
    keep_inputs(outfile, *(files := model_files(embedder.options_file, embedder.weight_file)))
    layer_selector(layers, embedder.n_layers)
    run = {
        "dataset": text.digest,
        **_digests(embedder, vocab_file),
        "layers": layers if isinstance(layers, str) else list(map(int, layers)),
        **{"dtype": dtype, "precision": precision, "part_sentences": part_sentences},
        **{path.name: _digest(path) for path in files[2:]},
    }
    return _embed(corpus, text, embedder, outfile, run)


def _embed(corpus: Shards, text: _Text, embedder: ElmoEmbedder, outfile: str, run: dict) -> int:
    """Write a corpus part by part, then all parts into one file; return how many sentences."""
    with Parts(outfile, run) as parts:
        n_parts = -(-text.n_sentences // run["part_sentences"])
        sentences, progress = read_corpus(corpus), _Progress(text.n_tokens)
        _write_parts(parts, n_parts, sentences, embedder, run, progress)
        logging.info("%s: merging %d parts", outfile, n_parts)
        parts.merge(n_parts)
    return text.n_sentences


def _check_numbers(dtype: str, part_sentences: int) -> None:
    if dtype not in DTYPES or part_sentences < 1:
        raise ValueError(
            f"dtype is {dtype!r}, expected one of {DTYPES}; "
            f"part_sentences is {part_sentences}, expected 1 or more"
        )


def _check_files(outfile: str, dataset_file: str, vocab_file: str | None) -> None:
    if Path(outfile).is_dir():
        raise DataError(f"{outfile}: a folder; expected the name of a file to write")
    require_files([dataset_file])
    keep_inputs(outfile, dataset_file, vocab_file)


def _digests(embedder: ElmoEmbedder, vocab_file: str | None) -> dict[str, str | None]:
    """Return the digests of a model's files, by which a continued call knows them again."""
    return {
        "options": _digest(embedder.options_file),
        "weights": _digest(embedder.weight_file),
        "vocabulary": _digest(vocab_file) if embedder.options.reads_words else None,
    }


def _write_parts(
    parts: Parts,
    n_parts: int,
    sentences: Iterator[list[str]],
    embedder: ElmoEmbedder,
    run: dict,
    progress: _Progress,
) -> None:
    """Write the parts that are not there yet."""
    layers, dtype, part_sentences = run["layers"], run["dtype"], run["part_sentences"]
    n_closed = parts.n_closed()
    if n_closed:
        logging.info("%s: %d of %d parts are there already", parts.folder, n_closed, n_parts)
    for part in range(n_parts):
        if part % WARM_PARTS == 0:
            embedder.clear_cache()
        words, first = islice(sentences, part_sentences), part * part_sentences
        if part >= n_closed:
            write_embeddings(parts.path(part), first, words, embedder, layers, dtype, progress)
        elif n_closed < n_parts and part >= n_closed - n_closed % WARM_PARTS:
            # The vectors of words that the interrupted run kept: to the bit, not just nearly.
            embedder.warm_up(progress.skip(words))
        else:
            deque(progress.skip(words), maxlen=0)


def read_corpus(corpus: str | Path | Shards) -> Iterator[list[str]]:
    """Yield the words of each sentence of a file, plain or gzip, or of several.

    A name that ends in `.conllu` or `.conllu.gz` is CoNLL-U: words are its FORM column, without
    ranges of multiword tokens (1-2) and empty nodes (1.1). Any other file has a sentence a line,
    its words between blanks, and an empty line is a sentence without words.

    Args:
        corpus: the file, or `Shards`.
    Raises: DataError as `bilm.data.text.read_lines` does, or for a line that is not CoNLL-U.
    """
    shards = corpus if isinstance(corpus, Shards) else Shards([str(expanded(corpus))])
    for i, path in enumerate(shards):
        if path.lower().removesuffix(".gz").endswith(".conllu"):
            yield from _read_conllu(path, shards.lines(i))
        else:
            yield from (line.split() for *_, line in shards.lines(i))


def _read_conllu(path: str, lines: Iterator[tuple]) -> Iterator[list[str]]:
    words: list[str] = []
    for number, _, _, line in lines:
        if not line and words:
            yield words
            words = []
        if not line or line.startswith("#"):
            continue
        columns = line.split("\t")
        if len(columns) < 2 or not columns[0].replace("-", "").replace(".", "").isdecimal():
            raise DataError(
                f"{path}, line {number}: {line[:40]!r}; expected the columns of CoNLL-U, "
                "ID and FORM first, with tabs between them"
            )
        if columns[0].isdecimal():
            words.append(columns[1])
    if words:
        yield words


class _Text(NamedTuple):
    n_sentences: int
    n_tokens: int
    digest: str


def _survey(corpus: Shards) -> _Text:
    """Count a corpus and digest its words: what is wrong with it shows before the work starts."""
    n_sentences, n_tokens, digest = 0, 0, hashlib.sha256()
    for words in watched(read_corpus(corpus), corpus.name):
        n_sentences += 1
        n_tokens += len(words)
        digest.update("\t".join(words).encode() + b"\n")
    return _Text(n_sentences, n_tokens, digest.hexdigest())


def _digest(path: str | Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_embeddings(
    path: Path,
    first: int,
    sentences: Iterable[list[str]],
    embedder: ElmoEmbedder,
    layers: Layers,
    dtype: str,
    on_sentence: Callable[[list[str]], None] = lambda words: None,
) -> None:
    """Write sentences into one HDF5 file, the first having the number `first`; see there."""
    with (
        replacing(path) as temporary,
        NewHDF5(temporary) as file,
        closing(embedder.embed_as_completed(sentences, layers)) as embedded,
    ):
        for number, words, vectors in embedded:
            name, vectors = str(first + number), vectors.astype(dtype, copy=False)
            file.create_dataset(name, data=vectors).attrs[SENTENCE] = join_words(words)
            file.check()
            on_sentence(words)


class _Progress:
    """Counts the words done and logs the time left every few seconds."""

    def __init__(self, n_tokens: int):
        self._n_left, self._n_done = n_tokens, 0
        self._start = self._logged = time.monotonic()

    def __call__(self, words: list[str]) -> None:
        self._n_left -= len(words)
        self._n_done += len(words)
        now = time.monotonic()
        if now - self._logged >= LOG_SECONDS:
            rate = max(self._n_done, 1) / (now - self._start)
            left = timedelta(seconds=round(self._n_left / rate))
            logging.info(
                "%s tokens, %s a second, %s left", f"{self._n_done:,}", f"{rate:,.0f}", left
            )
            self._logged = now

    def skip(self, sentences: Iterable[list[str]]) -> Iterator[list[str]]:
        """Pass sentences on that were done before."""
        for words in sentences:
            self._n_left -= len(words)
            yield words
