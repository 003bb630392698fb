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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.errors import DataError, OptionsError
from bilm.support.files import replacing
from bilm.support.imports import optional
from bilm.support.model_files import protect

if TYPE_CHECKING:
    import pandas
    import pyarrow

KEY = b"bilm.usages"
VERSION = 1
ROWS = 2_000  # usages in a row group
COLUMNS = (
    "word", "grouping", "identifier", "text", "line", "position", "sentence", "form", "lemma",
    "tag", "date", "description",
)  # fmt: skip
DTYPES = ("float32", "float16")


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
        """The words of the sentence."""
        return self.sentence.split(" ")

    @property
    def form(self) -> str:
        """The word as it occurs."""
        return self.words[self.position]


def as_sentence(words: Iterable[str]) -> str:
    """Return words joined by blanks. A blank inside a word, as CoNLL-U and lists of words in tables
    allow, becomes U+00A0 (no-break space), so that `split(" ")` returns the words again."""
    return " ".join(word.replace(" ", "\u00a0") for word in words)


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
        """Read the text of a file. Raises: DataError if it is not valid."""
        try:
            found = json.loads(text)
            version = found.pop("version")
            if version != VERSION:
                raise DataError(
                    f"{path}: version {version} of the table; expected version {VERSION}; write "
                    "the table again with bilm usages"
                )
            groupings = [Grouping(**{**g, "texts": tuple(g["texts"])}) for g in found["groupings"]]
            return Description(
                **{**found, "groupings": tuple(groupings), "layers": tuple(found["layers"])}
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path}: the metadata {KEY.decode()} is damaged ({error!r}); write the table "
                "again with bilm usages"
            ) from error


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

    @staticmethod
    def without_vectors(usages: Iterable[Usage], description: Description) -> Usages:
        """Return usages without vectors."""
        pandas = optional("pandas", "analysis", "tables of usages")
        frame = pandas.DataFrame(columns_of(usages), columns=list(COLUMNS))
        return Usages(frame, {}, description)

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def layers(self) -> list[int]:
        """The numbers of the layers."""
        return list(self.arrays)

    @staticmethod
    def open(path: str | Path) -> UsagesFile:
        """Open a table without reading vectors: see `UsagesFile`. Raises: DataError."""
        return UsagesFile(path)

    @property
    def dim(self) -> int:
        """The number of features of a vector."""
        return self.description.dim

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
        found = pandas.DataFrame.from_dict(self.description.counts, orient="index", dtype="int64")
        return found.rename_axis("word").reindex(columns=self.groupings)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the table: the model, groupings, counts and sample, as in the file."""
        return json.loads(self.description.as_json())

    def vectors(self, layer: int) -> np.ndarray:
        """Return the vectors of a layer, float32 (N, D). Raises: OptionsError if it is missing."""
        if layer not in self.arrays:
            raise OptionsError(
                f"layer {layer} is not in the table of usages, only {self.layers}; write the table "
                f"with bilm usages --layers {layer}"
            )
        return self.arrays[layer]

    def where(self, mask: Any) -> Usages:
        """Return the usages that a boolean mask (N,) selects."""
        chosen = np.asarray(mask, bool)
        arrays = {layer: vectors[chosen] for layer, vectors in self.arrays.items()}
        return Usages(self.frame[chosen].reset_index(drop=True), arrays, self.description)

    def of(self, word: str) -> Usages:
        """Return the usages of a word."""
        return self.where(self.frame["word"] == word)

    def nearest(self, row: int, n: int = 10, layer: int | None = None) -> pandas.DataFrame:
        """Return the usages whose vectors are most similar to the vector of one usage.

        Args:
            row: number of the usage.
            n: maximum number of results.
            layer: None for the highest layer.
        Returns: rows of `frame`, the most similar first, with the column `similarity`, the cosine.
            The usage itself is left out.
        Raises: OptionsError if the row or the layer does not exist.
        """
        if not 0 <= row < len(self):
            raise OptionsError(f"row is {row}, expected 0 to {len(self) - 1}")
        vectors = normalized(self.vectors(self.layers[-1] if layer is None else layer))
        similarity = vectors @ vectors[row]
        order = np.argsort(-similarity, kind="stable")
        order = order[order != row][:n]
        return self.frame.iloc[order].assign(similarity=similarity[order])

    def write(self, path: str | Path) -> None:
        """Write the usages to a Parquet file. Raises: DataError if it belongs to a model."""
        frame = self.frame
        protect(path)
        with writing(path, self.description, "float32") as writer:
            for rows in frame.groupby("word", sort=False).indices.values():
                for start in range(0, len(rows), ROWS):
                    part = rows[start : start + ROWS]
                    columns = {n: frame[n].iloc[part].tolist() for n in COLUMNS}
                    writer.write(columns, {k: v[part] for k, v in self.arrays.items()})


def columns_of(usages: Iterable[Usage]) -> dict[str, list[Any]]:
    """Return the columns of usages, without vectors."""
    rows = [{**usage._asdict(), "form": usage.form} for usage in usages]
    return {name: [row[name] for row in rows] for name in COLUMNS}


def row_groups(usages: Sequence[Usage]) -> Iterator[range]:
    """Yield the numbers of the usages of each row group: at most `ROWS`, all of one word."""
    start = 0
    for stop in range(1, len(usages) + 1):
        is_last = stop == len(usages)
        if is_last or stop - start == ROWS or usages[stop].word != usages[start].word:
            yield range(start, stop)
            start = stop


def sampled(usages: Usages, n: int, seed: int = 0) -> Usages:
    """Return at most `n` usages, drawn at random, in their order."""
    if len(usages) <= n:
        return usages
    chosen = np.random.default_rng(seed).choice(len(usages), n, replace=False)
    return usages.where(np.isin(np.arange(len(usages)), chosen))


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Return vectors (N, D) divided by their Euclidean norms; vectors of zeros stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)


class UsagesWriter:
    """Writes a table of usages; each call of `write` writes a row group.

    Args:
        path: the file.
        description: its metadata.
        dtype: dtype of the stored vectors, one of `DTYPES`.
    """

    def __init__(
        self,
        path: str | Path,
        description: Description,
        dtype: str = "float32",
    ):
        pa = arrow()
        self.description, self.dtype = description, dtype
        fields = [(name, pa.string()) for name in COLUMNS]
        integers = {"line": pa.int64(), "position": pa.int32()}
        fields = [(name, integers.get(name, kind)) for name, kind in fields]
        number = pa.float32() if dtype == "float32" else pa.float16()
        vector = pa.list_(number, description.dim)
        fields += [(f"layer_{layer}", vector) for layer in description.layers]
        schema = pa.schema(fields).with_metadata({KEY: description.as_json().encode()})
        self.schema: pyarrow.Schema = schema
        self._file = arrow("pyarrow.parquet").ParquetWriter(path, schema)

    def __enter__(self) -> UsagesWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(
        self, columns: Mapping[str, Sequence[Any]], vectors: Mapping[int, np.ndarray]
    ) -> None:
        """Write a row group: columns by name, and vectors (N, D) by layer."""
        pa = arrow()
        arrays = []
        for kind in self.schema:
            name = kind.name
            if name.startswith("layer_"):
                values = np.ascontiguousarray(
                    vectors[int(name.removeprefix("layer_"))], dtype=self.dtype
                )
                flat = pa.array(values.reshape(-1), kind.type.value_type)
                arrays.append(pa.FixedSizeListArray.from_arrays(flat, self.description.dim))
            else:
                arrays.append(pa.array(_without_nan(columns[name]), kind.type))
        self._file.write_table(pa.Table.from_arrays(arrays, schema=self.schema))


def _without_nan(values: Sequence[Any]) -> list[Any]:
    """Return values with None instead of nan, which pandas stores for missing strings."""
    return [None if isinstance(v, float) and v != v else v for v in values]


class UsagesFile:
    """A table of usages on the disk. Vectors are read by `read` only.

    Args:
        path: the Parquet file.
    Attributes: `path`; `description`.
    Raises: DataError if the file is not a table of usages.
    """

    def __init__(self, path: str | Path):
        self.path = str(Path(path).expanduser())
        try:
            self._schema = arrow("pyarrow.parquet").read_schema(self.path)
        except FileNotFoundError as error:
            raise DataError(f"{self.path}: no such file; write it with bilm usages") from error
        except (OSError, arrow().ArrowException) as error:
            raise DataError(f"{self.path}: cannot be read as Parquet: {error}") from error
        missing = [name for name in COLUMNS if name not in self._schema.names]
        metadata = self._schema.metadata or {}
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
        column = self._read(["word"])["word"]
        return column.unique().to_pylist()

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
        chosen = None if words is None else [words] if isinstance(words, str) else list(words)
        for word in chosen or ():
            if word not in self.words:
                listed = ", ".join(self.words[:10]) + (", ..." if len(self.words) > 10 else "")
                raise DataError(f"{self.path}: no usages of {word!r}; it contains {listed}")
        table = self._read([*COLUMNS, *(f"layer_{layer}" for layer in numbers)], chosen)
        arrays = {}
        for layer in numbers:
            column = table[f"layer_{layer}"].combine_chunks()
            flat = column.flatten().to_numpy(zero_copy_only=False)
            arrays[layer] = flat.reshape(len(table), -1).astype(np.float32, copy=False)
        return Usages(table.select(list(COLUMNS)).to_pandas(), arrays, self.description)

    def by_word(self, layers: Iterable[int] | None = None) -> Iterator[tuple[str, Usages]]:
        """Yield each word with its usages; only one word is in memory at a time."""
        numbers = None if layers is None else list(layers)
        for word in self.words:
            yield word, self.read(word, numbers)

    def _read(self, columns: list[str], words: list[str] | None = None) -> pyarrow.Table:
        filters = None if words is None else [("word", "in", words)]
        try:
            return arrow("pyarrow.parquet").read_table(
                self.path, columns=columns, filters=filters, partitioning=None
            )
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


@contextmanager
def writing(path: str | Path, description: Description, dtype: str) -> Iterator[UsagesWriter]:
    """Yield a writer of a table that gets its name when the block ends without an error."""
    with (
        replacing(path) as temporary,
        UsagesWriter(temporary, description, dtype) as writer,
    ):
        yield writer
