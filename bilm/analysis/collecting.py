"""Collecting the usages of words from texts, and writing their table."""

from __future__ import annotations

import random
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.analysis.queries import Matcher, Query, parse_query
from bilm.analysis.usages import (
    DTYPES,
    Description,
    Grouping,
    Usage,
    Usages,
    UsagesFile,
    as_sentence,
    columns_of,
    row_groups,
    writing,
)
from bilm.data.readers import Corpus
from bilm.data.shards import matching_files
from bilm.errors import DataError, OptionsError
from bilm.support.files import scratch
from bilm.support.model_files import protect
from bilm.support.progress import progress

if TYPE_CHECKING:
    from bilm.embedding.embedder import ElmoEmbedder
    from bilm.storage.stored_model import StoredModel

SAMPLE = 1_000  # usages per word and grouping


class Found(NamedTuple):
    """The usages of words in texts, before vectors are computed.

    Fields:
        usages: ordered by word, grouping and place.
        description: counts and groupings, without a model.
    """

    usages: list[Usage]
    description: Description


def find_usages(
    texts: Mapping[str, Sequence[Corpus]],
    queries: Sequence[Query],
    *,
    ignore_case: bool = False,
    lemma: bool = False,
    tags: Container[str] | None = None,
    sample: int | None = SAMPLE,
    seed: int = 0,
) -> Found:
    """Find the usages of words in one pass over texts.

    Of the usages of a word in a grouping, `sample` are kept, drawn uniformly (algorithm R of
    Vitter 1985, Random Sampling with a Reservoir). The sample of a word depends only on the seed,
    the word, the grouping and its text. Memory is proportional to the number of kept usages, about
    400 bytes plus the length of the sentence each.

    Args:
        texts: the files of each grouping.
        queries: the words to find.
        ignore_case: whether case is ignored.
        lemma: whether lemmas of the text are compared with the words instead of forms.
        tags: parts of speech to keep; None for all.
        sample: maximum number of usages per word and grouping; None for all.
        seed: seed of the sample.
    Raises: DataError for a text that cannot be read, without annotation if `lemma` or `tags` is
        given, or without any usage.
    """
    matcher = Matcher(queries, ignore_case)
    names = [query.name for query in queries]
    kept: dict[tuple[int, int], Reservoir] = {}
    groupings = []
    with progress("finding", "sentences") as shown:
        for number, (grouping, corpora) in enumerate(texts.items()):
            for k, name in enumerate(names):
                kept[k, number] = Reservoir(sample, f"{seed}\0{name}\0{grouping}")
            n_sentences = n_tokens = 0
            for corpus in corpora:
                for line, record in enumerate(shown.over(corpus.annotated()), 1):
                    if not record.words:
                        continue
                    n_sentences += 1
                    n_tokens += len(record.words)
                    if (lemma or tags is not None) and record.lemmas is None:
                        raise DataError(
                            f"{corpus.path}: contains no lemmas and parts of speech; --lemma and "
                            "--tags require CoNLL-U (.conllu)"
                        )
                    own = record.lemmas if lemma and record.lemmas else record.words
                    sentence = None
                    for position, k in matcher.matches(own):
                        tag = record.tags[position] if record.tags else None
                        if tags is not None and tag not in tags:
                            continue
                        if (place := kept[k, number].next_place()) is None:
                            continue
                        sentence = as_sentence(record.words) if sentence is None else sentence
                        kept[k, number].keep(
                            place,
                            Usage(
                                names[k], grouping, f"{corpus.path}:{line}:{position}",
                                corpus.path, line, position, sentence,
                                record.lemmas[position] if record.lemmas else None, tag,
                            ),
                        )  # fmt: skip
            paths = tuple(corpus.path for corpus in corpora)
            groupings.append(Grouping(grouping, paths, n_sentences, n_tokens))
    counts = {
        name: {g.name: kept[k, n].n_seen for n, g in enumerate(groupings)}
        for k, name in enumerate(names)
    }
    if not any(map(bool, (n for found in counts.values() for n in found.values()))):
        raise DataError(
            f"none of the {len(names):,} words occurs in {', '.join(texts)}; compare their case "
            "and spelling with the text"
        )
    usages = [usage for key in sorted(kept) for usage in kept[key].sorted()]
    return Found(usages, Description(tuple(groupings), counts, sample=sample, seed=seed))


def open_texts(
    texts: Mapping[str, str | Path | Sequence[str | Path]],
    column: str | None = None,
    tokenize: str | None = None,
    on_bad_utf8: str = "error",
) -> dict[str, list[Corpus]]:
    """Open the files of groupings, in any input form, plain or gzip.

    Args:
        texts: for each grouping, a file or a pattern, or several of them.
        column, tokenize, on_bad_utf8: see `bilm.data.readers.Corpus`.
    Raises: DataError if a file is missing or an argument does not apply to it.
    """
    lists = {k: [v] if isinstance(v, str | Path) else list(v) for k, v in texts.items()}
    return {
        grouping: [
            Corpus(path, column, tokenize=tokenize, on_bad_utf8=on_bad_utf8)
            for pattern in patterns
            for path in matching_files(pattern)
        ]
        for grouping, patterns in lists.items()
    }


class Reservoir:
    """A uniform sample of a stream of usages.

    Args:
        size: maximum number of usages that are kept; None for all.
        seed: the sample depends on this text and on the stream.
    Attributes: `n_seen`, the number of usages in the stream so far.
    """

    def __init__(self, size: int | None, seed: str):
        self.size, self.n_seen = size, 0
        self._kept: dict[int, tuple[int, Usage]] = {}
        self._random = random.Random(seed)

    def next_place(self) -> int | None:
        """Draw the place of the next usage of the stream; None if it is dropped."""
        number, self.n_seen = self.n_seen, self.n_seen + 1
        if self.size is None or number < self.size:
            return number
        place = self._random.randrange(number + 1)
        return place if place < self.size else None

    def keep(self, place: int, usage: Usage) -> None:
        """Keep the last usage of the stream at its place and drop an earlier one of this place."""
        self._kept[place] = self.n_seen, usage

    def add(self, usage: Usage) -> None:
        """Keep a usage, or drop it or another one at random."""
        if (place := self.next_place()) is not None:
            self.keep(place, usage)

    def sorted(self) -> list[Usage]:
        """Return the sample in the order of the stream."""
        return [usage for _, usage in sorted(self._kept.values(), key=lambda pair: pair[0])]


def collect_usages(
    model: str | Path | StoredModel,
    words: Iterable[str],
    texts: Mapping[str, str | Path | Sequence[str | Path]],
    *,
    layers: Sequence[int] | None = None,
    column: str | None = None,
    tokenize: str | None = None,
    on_bad_utf8: str = "error",
    **how: Any,
) -> Usages:
    """Return the usages of words in texts with their vectors, in memory.

    Args:
        model: a stored model, see `bilm.storage.stored_model.open_model`.
        words: entries as in a list of words, see `parse_query`.
        texts: for each grouping, a file or a pattern, or several of them.
        layers: numbers of the layers; None for all.
        column, tokenize, on_bad_utf8: see `bilm.data.readers.Corpus`.
        how: `ignore_case`, `lemma`, `tags`, `sample` and `seed` of `find_usages`.
    Raises: as `find_usages` and `write_usages` do.

    Example:
        usages = collect_usages("novels-en", ["cell: cell cells"], {"then": "then.txt"})
    """
    from bilm.embedding.embedder import ElmoEmbedder

    queries = [parse_query(word, "words") for word in words]
    found = find_usages(open_texts(texts, column, tokenize, on_bad_utf8), queries, **how)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "usages.parquet"
        return write_usages(found, ElmoEmbedder(model), path, layers=layers).read()


def write_usages(
    found: Found,
    embedder: ElmoEmbedder,
    output: str | Path,
    *,
    layers: Sequence[int] | None = None,
    dtype: str = "float32",
) -> UsagesFile:
    """Compute the vectors of usages and write their table, in bounded memory.

    Each sentence is embedded once, in the order of the texts. A temporary file beside the output
    contains the vectors until they are written in the order of the table; it is as large as the
    vectors.

    Args:
        found: result of `find_usages` or `bilm.analysis.dwug.read_dwug`.
        embedder: computes the vectors; each sentence starts from zero state.
        output: the Parquet file.
        layers: numbers of the layers to store; None for all.
        dtype: dtype of the stored vectors, float32 or float16.
    Raises: OptionsError for a layer that does not exist; DataError if `output` is one of the texts
        or belongs to a model.
    """
    numbers = list(range(embedder.n_layers)) if layers is None else list(dict.fromkeys(layers))
    if not numbers or not all(0 <= k < embedder.n_layers for k in numbers):
        raise OptionsError(
            f"layers are {numbers}, expected numbers from 0 to {embedder.n_layers - 1}"
        )
    if dtype not in DTYPES:
        raise OptionsError(f"dtype is {dtype!r}, expected one of {', '.join(DTYPES)}")
    stored = embedder.stored
    description = Description(
        **{
            **found.description.__dict__,
            "layers": tuple(numbers),
            "dim": embedder.dim,
            "model": str(stored),
            "digest": stored.digest,
        }
    )
    texts = [text for grouping in description.groupings for text in grouping.texts]
    protect(output, *texts, *stored.own_files)
    shape = len(numbers), embedder.dim
    with (
        _spool(output, shape, dtype) as spool,
        writing(output, description, dtype) as writer,
    ):
        _compute(found.usages, embedder, numbers, spool)
        for rows in row_groups(found.usages):
            columns = columns_of(found.usages[rows.start : rows.stop])
            vectors = spool.read(rows)
            writer.write(columns, {layer: vectors[:, k] for k, layer in enumerate(numbers)})
    return UsagesFile(output)


def _compute(
    usages: Sequence[Usage],
    embedder: ElmoEmbedder,
    layers: Sequence[int],
    spool: _Spool,
) -> None:
    """Write the vectors of usages to a spool."""

    def place(k: int) -> tuple[str, int, str]:
        return usages[k].text, usages[k].line, usages[k].sentence

    order = sorted(range(len(usages)), key=place)
    sentences = (usages[next(same)].words for _, same in groupby(order, place))
    embedded = embedder.embed_sentences(sentences, layers)
    with progress("embedding", "usages", len(usages)) as shown:
        for _, same in groupby(order, place):
            own = list(same)
            vectors = next(embedded)
            for k in own:
                spool.write(k, vectors[:, usages[k].position])
            shown.add(len(own))


class _Spool:
    """The vectors of usages in a file, for writing in any order.

    Args:
        path: the file.
        shape: number of layers, and features of a vector.
        dtype: dtype of the vectors.
    """

    def __init__(self, path: Path, shape: tuple[int, int], dtype: str):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self._bytes = shape[0] * shape[1] * self.dtype.itemsize
        self._file = open(path, "w+b")  # noqa: SIM115 (`_spool` closes it)

    def write(self, k: int, vectors: np.ndarray) -> None:
        """Write the vectors of usage `k`, (layers, D)."""
        self._file.seek(k * self._bytes)
        self._file.write(np.ascontiguousarray(vectors, self.dtype).tobytes())

    def read(self, rows: range) -> np.ndarray:
        """Return the vectors of usages, (N, layers, D)."""
        self._file.seek(rows.start * self._bytes)
        content = self._file.read(len(rows) * self._bytes)
        return np.frombuffer(content, self.dtype).reshape(len(rows), *self.shape)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@contextmanager
def _spool(output: str | Path, shape: tuple[int, int], dtype: str) -> Iterator[_Spool]:
    """Yield a `_Spool` in a temporary folder beside the output, which is removed at the end."""
    with scratch(output) as folder:
        spool = _Spool(folder / "vectors", shape, dtype)
        try:
            yield spool
        finally:
            spool.close()
