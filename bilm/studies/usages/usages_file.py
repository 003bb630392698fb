"""Tables of usages on the disk: Parquet files, whose columns docs/usages.md describes. Vectors are
fixed-size lists of float32 or float16. The rows are ordered by word, grouping and place.

A row group contains one word, so that reading one word does not read the others. The key
`bilm.usages` of the schema's metadata contains counts and the description of the model, as JSON.
"""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bilm.errors import DataError, OptionsError
from bilm.studies.usages.usages import COLUMNS, Description, Usages
from bilm.support import optional, replacing

KEY = b"bilm.usages"
MAX_ROWS = 2_000  # usages in a row group
MAX_LISTED = 100  # characters of the words in an error


def arrow(module: str = "pyarrow") -> Any:
    """Import a module of pyarrow. Raises: MissingExtraError."""
    return optional(module, "analysis", "reading and writing tables of usages")


def write_table(path: str | Path, usages: Usages, dtype: str) -> None:
    """Write the usages of each word, in row groups of at most `MAX_ROWS`. The file is renamed into
    place when it is complete. `dtype` is that of the vectors, float32 or float16."""
    pa, parquet = arrow(), arrow("pyarrow.parquet")
    description = usages.description
    integers = {"line": pa.int64(), "position": pa.int32()}
    types = {name: integers.get(name, pa.string()) for name in COLUMNS}
    vector = pa.list_(pa.type_for_alias(dtype), description.dim)
    types |= {f"layer_{layer}": vector for layer in description.layers}
    schema = pa.schema(types, {KEY: description.as_json().encode()})
    with replacing(path) as temporary, parquet.ParquetWriter(temporary, schema) as file:
        for _, of_word in usages.by_word():
            vectors = {}
            for layer, array in of_word.arrays.items():
                vectors[f"layer_{layer}"] = list(array.astype(dtype))
            table = pa.Table.from_pandas(of_word.frame.assign(**vectors), schema)
            file.write_table(table, row_group_size=MAX_ROWS)


class UsagesFile:
    """A table of usages on the disk. Vectors are read by `read` only. Attributes: `path`, of the
    Parquet file; `description`. Raises: DataError if the file is not a table of usages."""

    def __init__(self, path: str | Path):
        self.path = str(Path(path).expanduser())
        schema = self._read(arrow("pyarrow.parquet").read_schema)
        metadata = schema.metadata or {}
        if KEY not in metadata:
            raise DataError(
                f"{self.path}: lacks the metadata {KEY.decode()}; expected a table that bilm "
                "usages wrote"
            )
        self.description = Description.from_json(metadata[KEY], self.path)

    @property
    def layers(self) -> list[int]:
        """The numbers of the stored layers."""
        return list(self.description.layers)

    @cached_property
    def words(self) -> list[str]:
        """The words that have usages, in the order of the file."""
        table = self._read(arrow("pyarrow.parquet").read_table, columns=["word"])
        return table["word"].unique().to_pylist()

    def read(
        self, words: str | Iterable[str] | None = None, layers: Iterable[int] | None = None
    ) -> Usages:
        """Read the usages of one word or several into memory, with the vectors of some layers; None
        for all. Raises: DataError for a word without usages, OptionsError for a missing layer."""
        numbers = self.layers if layers is None else list(layers)
        for layer in numbers:
            if layer not in self.layers:
                raise OptionsError(
                    f"{self.path}: contains the layers {self.layers}, not {layer}; write it with "
                    f"bilm usages --layers {layer}"
                )
        chosen = [words] if isinstance(words, str) else list(words or ())
        for word in chosen:
            if word not in self.words:
                listed = textwrap.shorten(", ".join(self.words), MAX_LISTED)
                raise DataError(f"{self.path}: no usages of {word!r}; it contains {listed}")

        filters = None if words is None else [("word", "in", chosen)]
        names = [*COLUMNS, *(f"layer_{layer}" for layer in numbers)]
        read_table = arrow("pyarrow.parquet").read_table
        table = self._read(read_table, columns=names, filters=filters, partitioning=None)
        frame = table.select(list(COLUMNS)).to_pandas()
        arrays = {}
        for layer in numbers:
            flat = table[f"layer_{layer}"].combine_chunks().flatten()
            vectors = flat.to_numpy(zero_copy_only=False).reshape(len(table), -1)
            arrays[layer] = vectors.astype(np.float32, copy=False)  # N, D
        return Usages(frame, arrays, self.description)

    def by_word(self, layers: Sequence[int] | None = None) -> Iterator[tuple[str, Usages]]:
        """Yield each word with its usages; only one word is in memory at a time."""
        return ((word, self.read(word, layers)) for word in self.words)

    def _read(self, read: Callable[..., Any], **how: Any) -> Any:
        """Call a function of pyarrow with the file. Raises: DataError, which names the file."""
        try:
            return read(self.path, **how)
        except (OSError, arrow().ArrowException) as error:
            raise DataError(f"{self.path}: cannot be read as Parquet: {error}") from error


def read_usages(
    path: str | Path, words: str | Iterable[str] | None = None, layers: Iterable[int] | None = None
) -> Usages:
    """Read a table of usages: see `UsagesFile.read`, and the example in docs/usages.md."""
    return UsagesFile(path).read(words, layers)
