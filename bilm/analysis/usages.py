"""Usages of words: a table of the places where words occur, with a vector per layer.

The table is a Parquet file. Each row is a usage, ordered by word, grouping and place. Columns:

    word                       name of the entry in the list of words
    grouping                   name of the text, such as a period
    identifier                 unique for each usage of a word
    text, line, position       file, number of the line or record from 1, index of the word from 0
    sentence                   the words, joined by blanks
    form                       the word as it occurs, `sentence.split(" ")[position]`
    lemma, tag                 from CoNLL-U or DWUG, else null
    date, description          from DWUG, else null
    layer_0, layer_1, ...      vectors: fixed-size lists of float32 or float16. Layer 0 does not
                               depend on the context

A row group contains one word, so that reading one word does not read the others. The key
`bilm.usages` of the schema's metadata contains counts and the description of the model, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.errors import DataError, OptionsError
from bilm.support.files import replacing
from bilm.support.imports import optional

if TYPE_CHECKING:
    import pandas

KEY = b"bilm.usages"
VERSION = 1
ROWS = 2_000  # usages in a row group
WINDOW = 5  # words to each side of a usage that count as its context
JOINED = "\u00a0"  # replaces a blank inside a word
COLUMNS = (
    "word", "grouping", "identifier", "text", "line", "position", "sentence", "form", "lemma",
    "tag", "date", "description",
)  # fmt: skip


def arrow(module: str = "pyarrow") -> Any:
    """Import a module of pyarrow. Raises: MissingExtraError."""
    return optional(module, "analysis", "reading and writing tables of usages")


class Usage(NamedTuple):
    """A place where a word occurs; the fields are columns of the table."""

    word: str
    grouping: str
    identifier: str
    text: str
    line: int
    position: int
    sentence: str
    lemma: str | None = None
    tag: str | None = None
    date: str | None = None
    description: str | None = None

    @property
    def words(self) -> list[str]:
        """The words of the sentence, which may contain blanks."""
        return [word.replace(JOINED, " ") for word in self.sentence.split(" ")]

    @property
    def form(self) -> str:
        """The word as it occurs, without blanks."""
        return self.sentence.split(" ")[self.position]


def as_sentence(words: Iterable[str]) -> str:
    """Return words joined by blanks. A blank inside a word, as CoNLL-U and lists of words in tables
    allow, becomes U+00A0 (no-break space), so that `split(" ")` separates the words again."""
    return " ".join(word.replace(" ", JOINED) for word in words)


class Grouping(NamedTuple):
    """A text or a group of texts, such as a period.

    Fields: `name`; `texts`, the files; `sentences` and `tokens`, their numbers.
    """

    name: str
    texts: tuple[str, ...]
    sentences: int
    tokens: int


@dataclass(frozen=True)
class Description:
    """What a table of usages contains: the metadata of the file.

    Fields:
        groupings: the texts.
        counts: word -> grouping -> number of usages in the text, before sampling.
        layers: numbers of the stored layers; empty without vectors.
        dim: features of a vector.
        model, digest: name and SHA-256 of the model.
        sample: maximum number of usages per word and grouping; None for all.
        seed: seed of the sample.
    """

    groupings: tuple[Grouping, ...]
    counts: Mapping[str, Mapping[str, int]]
    layers: tuple[int, ...] = ()
    dim: int = 0
    model: str = ""
    digest: str = ""
    sample: int | None = None
    seed: int = 0

    def as_json(self) -> str:
        """Return the text that the file contains."""
        groupings = [grouping._asdict() for grouping in self.groupings]
        return json.dumps({"version": VERSION, **self.__dict__, "groupings": groupings})

    @staticmethod
    def from_json(text: bytes, path: str) -> Description:
        """Read the text of a file. Raises: DataError for another version of the table."""
        fields = json.loads(text)
        if (version := fields.pop("version")) != VERSION:
            raise DataError(
                f"{path}: version {version} of the table; expected version {VERSION}; write the "
                "table again with bilm usages"
            )
        groupings = [Grouping(**{**g, "texts": tuple(g["texts"])}) for g in fields["groupings"]]
        fields |= {"groupings": tuple(groupings), "layers": tuple(fields["layers"])}
        return Description(**fields)


@dataclass(frozen=True)
class Usages:
    """Usages in memory.

    Fields:
        frame: the columns except vectors, a pandas data frame with index 0 ... N - 1.
        arrays: the vectors by layer, float32 (N, D).
        description: counts, groupings and model.
    """

    frame: pandas.DataFrame
    arrays: Mapping[int, np.ndarray] = field(repr=False)
    description: Description = field(repr=False)

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def layers(self) -> list[int]:
        """The numbers of the layers."""
        return list(self.arrays)

    @property
    def words(self) -> list[str]:
        """The words that have usages."""
        return self.frame["word"].unique().tolist()

    @property
    def groupings(self) -> list[str]:
        """The names of the groupings, in the order in which they were given."""
        return [grouping.name for grouping in self.description.groupings]

    @property
    def tokens(self) -> dict[str, int]:
        """The number of tokens of each grouping's texts."""
        return {grouping.name: grouping.tokens for grouping in self.description.groupings}

    @property
    def counts(self) -> pandas.DataFrame:
        """The number of usages in the texts, before sampling: words by groupings, int64."""
        pandas = optional("pandas", "analysis", "tables of usages")
        counts = pandas.DataFrame.from_dict(self.description.counts, orient="index", dtype="int64")
        return counts.rename_axis("word").reindex(columns=self.groupings)

    def vectors(self, layer: int | None = None) -> np.ndarray:
        """Return the vectors of a layer, float32 (N, D); None for the highest layer.

        Raises: OptionsError if it is missing; DataError if the vectors are not finite.
        """
        number = max(self.arrays, default=0) if layer is None else layer
        if number not in self.arrays:
            raise OptionsError(
                f"layer {number} is not in the table of usages, only {self.layers}; write the "
                f"table with bilm usages --layers {number}"
            )
        if not np.isfinite(self.arrays[number]).all():
            raise DataError(f"the vectors of layer {number} contain values that are not finite")
        return self.arrays[number]

    def where(self, mask: Any) -> Usages:
        """Return the usages that a boolean mask (N,) selects."""
        chosen = np.asarray(mask, bool)
        arrays = {layer: vectors[chosen] for layer, vectors in self.arrays.items()}
        return Usages(self.frame[chosen].reset_index(drop=True), arrays, self.description)

    def by_word(self, layers: Iterable[int] | None = None) -> Iterator[tuple[str, Usages]]:
        """Yield each word with its usages; see `UsagesFile.by_word`."""
        return ((word, self.where(self.frame["word"] == word)) for word in self.words)

    def sample(self, n: int, seed: int = 0) -> Usages:
        """Return at most `n` usages, drawn at random, in their order."""
        if len(self) <= n:
            return self
        chosen = np.random.default_rng(seed).choice(len(self), n, replace=False)
        return self.where(np.isin(np.arange(len(self)), chosen))

    def nearest(self, row: int, n: int = 10, layer: int | None = None) -> pandas.DataFrame:
        """Return the usages whose vectors are most similar to the vector of one usage.

        Args:
            row: number of the usage.
            n: maximum number of results.
            layer: None for the highest layer.
        Returns: rows of `frame`, the most similar first, with the column `similarity`, the cosine.
            The usage itself is left out.
        Raises: OptionsError if the layer does not exist.
        """
        vectors = normalized(self.vectors(layer))
        similarity = vectors @ vectors[row]
        order = np.argsort(-similarity, kind="stable")
        order = order[order != row][:n]
        return self.frame.iloc[order].assign(similarity=similarity[order])


def frame_of(usages: Iterable[Usage]) -> pandas.DataFrame:
    """Return the columns of usages, without vectors."""
    pandas = optional("pandas", "analysis", "tables of usages")
    rows = ({**usage._asdict(), "form": usage.form} for usage in usages)
    return pandas.DataFrame(rows, columns=list(COLUMNS))


def words_near(sentence: str, position: int) -> list[str]:
    """Return the words at most `WINDOW` places from a word of a sentence."""
    words = sentence.split(" ")
    return words[max(0, position - WINDOW) : position] + words[position + 1 : position + 1 + WINDOW]


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Return vectors (N, D) divided by their Euclidean norms; vectors of zeros stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)


# --- files ---


def write_table(
    path: str | Path, description: Description, dtype: str, words: Iterable[Usages]
) -> None:
    """Write a table, which is renamed into place when it is complete.

    Args:
        path: the file.
        description: its metadata.
        dtype: dtype of the stored vectors, float32 or float16.
        words: the usages of each word, which are written in row groups of at most `ROWS`.
    """
    pa, parquet = arrow(), arrow("pyarrow.parquet")
    integers = {"line": pa.int64(), "position": pa.int32()}
    vector = pa.list_(pa.type_for_alias(dtype), description.dim)
    fields = [(name, integers.get(name, pa.string())) for name in COLUMNS]
    fields += [(f"layer_{layer}", vector) for layer in description.layers]
    schema = pa.schema(fields).with_metadata({KEY: description.as_json().encode()})
    with replacing(path) as temporary, parquet.ParquetWriter(temporary, schema) as file:
        for usages in words:
            columns = pa.Table.from_pandas(
                usages.frame, pa.schema(fields[: len(COLUMNS)]), preserve_index=False
            ).columns
            for layer in description.layers:
                flat = pa.array(np.ravel(usages.arrays[layer]).astype(dtype))
                columns.append(pa.FixedSizeListArray.from_arrays(flat, description.dim))
            file.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=ROWS)


class UsagesFile:
    """A table of usages on the disk. Vectors are read by `read` only.

    Args:
        path: the Parquet file.
    Attributes: `path`; `description`.
    Raises: DataError if the file is not a table of usages.
    """

    def __init__(self, path: str | Path):
        self.path = str(Path(path).expanduser())
        schema = self._reading("read_schema")
        missing = [name for name in COLUMNS if name not in schema.names]
        metadata = schema.metadata or {}
        if missing or KEY not in metadata:
            lack = f"the column {missing[0]}" if missing else f"the metadata {KEY.decode()}"
            raise DataError(f"{self.path}: lacks {lack}; expected a table that bilm usages wrote")
        self.description = Description.from_json(metadata[KEY], self.path)

    @property
    def layers(self) -> list[int]:
        """The numbers of the stored layers."""
        return list(self.description.layers)

    @cached_property
    def words(self) -> list[str]:
        """The words that have usages, in the order of the file."""
        return self._reading("read_table", columns=["word"])["word"].unique().to_pylist()

    def read(
        self, words: str | Iterable[str] | None = None, layers: Iterable[int] | None = None
    ) -> Usages:
        """Read usages into memory.

        Args:
            words: one word or several; None for all.
            layers: numbers of the layers; None for all.
        Raises: DataError for a word without usages, OptionsError for a layer that is not stored.
        """
        numbers = self.layers if layers is None else list(layers)
        for layer in numbers:
            if layer not in self.layers:
                raise OptionsError(
                    f"{self.path}: contains the layers {self.layers}, not {layer}; write it with "
                    f"bilm usages --layers {layer}"
                )
        chosen = [words] if isinstance(words, str) else list(self.words if words is None else words)
        for word in chosen:
            if word not in self.words:
                listed = ", ".join(self.words[:10]) + (", ..." if len(self.words) > 10 else "")
                raise DataError(f"{self.path}: no usages of {word!r}; it contains {listed}")
        names = [*COLUMNS, *(f"layer_{layer}" for layer in numbers)]
        filters = None if words is None else [("word", "in", chosen)]
        table = self._reading("read_table", columns=names, filters=filters, partitioning=None)
        arrays = {}
        for layer in numbers:
            values = table[f"layer_{layer}"].combine_chunks().flatten()
            values = values.to_numpy(zero_copy_only=False).reshape(len(table), -1)
            arrays[layer] = values.astype(np.float32, copy=False)
        return Usages(table.select(list(COLUMNS)).to_pandas(), arrays, self.description)

    def by_word(self, layers: Iterable[int] | None = None) -> Iterator[tuple[str, Usages]]:
        """Yield each word with its usages; only one word is in memory at a time."""
        numbers = None if layers is None else list(layers)
        return ((word, self.read(word, numbers)) for word in self.words)

    def _reading(self, function: str, **arguments: Any) -> Any:
        """Return the result of a function of `pyarrow.parquet`."""
        try:
            return getattr(arrow("pyarrow.parquet"), function)(self.path, **arguments)
        except (OSError, arrow().ArrowException) as error:
            raise DataError(f"{self.path}: cannot be read as Parquet: {error}") from error


def read_usages(
    path: str | Path,
    words: str | Iterable[str] | None = None,
    layers: Iterable[int] | None = None,
) -> Usages:
    """Read a table of usages: see `UsagesFile.read`.

    Example:
        usages = bilm.analysis.read_usages("usages.parquet", "cell")
        usages.nearest(0, 5)[["similarity", "grouping", "sentence"]]
    """
    return UsagesFile(path).read(words, layers)
