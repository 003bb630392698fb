"""Tables of usages on the disk: Parquet files, whose columns docs/usages.md describes. Vectors are
fixed-size lists of float32 or float16. The rows are ordered by word, grouping and place.

A row group contains one word, so that reading one word does not read the others. The key
`bilm.usages` of the schema's metadata contains counts and the description of the model, as JSON.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from bilm.errors import DataError, OptionsError
from bilm.studies.usages.finding import FoundUsages, Texts, find_usages, open_texts, parse_query
from bilm.studies.usages.usages import COLUMNS, Description, Usages, frame_of
from bilm.support import Progress, optional, protect, replacing, scratch

if TYPE_CHECKING:
    from bilm.embedding import ElmoEmbedder
    from bilm.storage import StoredModel

KEY = b"bilm.usages"
MAX_ROWS = 2_000  # usages in a row group
MAX_LISTED = 100  # characters of the words in an error


def arrow(module: str = "pyarrow") -> Any:
    """Import a module of pyarrow. Raises: MissingExtraError."""
    return optional(module, "analysis", "reading and writing tables of usages")


def collect_usages(
    model: str | Path | StoredModel,
    words: Iterable[str],
    texts: Texts,
    *,
    layers: Sequence[int] | None = None,
    column: str | None = None,
    tokenize: str | None = None,
    on_bad_utf8: str = "error",
    quoting: str | None = None,
    **how: Any,
) -> Usages:
    """Return the usages of words in texts with their vectors, in memory.

    Args:
        model: a stored model, see `bilm.storage.stored_model.open_model`.
        words: entries as in a list of words, see `parse_query`.
        texts, column, tokenize, on_bad_utf8, quoting: see `open_texts`.
        layers: numbers of the layers; None for all.
        how: `ignore_case`, `lemma`, `tags`, `sample` and `seed` of `find_usages`.
    """
    from bilm.embedding import ElmoEmbedder

    queries = [parse_query(word, "words") for word in words]
    opened = open_texts(
        texts, column=column, tokenize=tokenize, on_bad_utf8=on_bad_utf8, quoting=quoting
    )
    found_usages = find_usages(opened, queries, **how)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "usages.parquet"
        return write_usages(found_usages, ElmoEmbedder(model), path, layers=layers).read()


def write_usages(
    found_usages: FoundUsages,
    embedder: ElmoEmbedder,
    output: str | Path,
    *,
    layers: Sequence[int] | None = None,
    dtype: str = "float32",
) -> UsagesFile:
    """Compute the vectors of usages and write their table, in bounded memory: each sentence is
    embedded once from zero state, and a temporary file beside the output contains the vectors until
    they are written in the order of the table. `layers`: numbers of those to store; None for all.
    Raises: OptionsError for a layer that does not exist; DataError if `output` is one of the texts
    or belongs to a model."""
    usages = found_usages.usages
    model = embedder.stored
    stored_layers = embedder.selection("all" if layers is None else layers).numbers
    description = replace(
        found_usages.description,
        layers=tuple(dict.fromkeys(stored_layers)),
        dim=embedder.dim,
        model=str(model),
        digest=model.digest,
    )
    texts = [text for grouping in description.groupings for text in grouping.texts]
    protect(output, *texts, *model.own_files)

    # The numbers of the usages in each sentence
    def sentence_of(number: int) -> tuple[str, int, list[str]]:
        usage = usages[number]
        return usage.text, usage.line, usage.words

    in_text_order = sorted(range(len(usages)), key=sentence_of)
    by_sentence = [list(numbers) for _, numbers in groupby(in_text_order, sentence_of)]
    sentences = (usages[numbers[0]].words for numbers in by_sentence)
    embedded = embedder.embed_sentences(sentences, description.layers)

    with scratch(output) as folder:
        bar = Progress("embedding", "usages", len(usages))
        with open(folder / "vectors", "wb") as file:
            for numbers, vectors in zip(by_sentence, embedded, strict=True):  # layers, T, D
                for number in bar.over(numbers):
                    content = vectors[:, usages[number].position].astype(dtype).tobytes()
                    file.seek(number * len(content))
                    file.write(content)

        # The same as arrays in the order of the usages
        shape = len(usages), len(description.layers), embedder.dim
        stored: np.ndarray = np.memmap(folder / "vectors", dtype, "r", shape=shape)
        arrays = {layer: stored[:, index] for index, layer in enumerate(description.layers)}
        _write_table(output, Usages(frame_of(usages), arrays, description), dtype)
    return UsagesFile(output)


def _write_table(path: str | Path, usages: Usages, dtype: str) -> None:
    """Write the usages of each word, in row groups of at most `MAX_ROWS`, by one renamed file."""
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
    Parquet file; `description`; `layers`, the stored ones; `words` that have usages, in the order
    of the file. Raises: DataError if the file is not a table of usages."""

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
        self.layers = list(self.description.layers)
        words = self._read(arrow("pyarrow.parquet").read_table, columns=["word"], partitioning=None)
        self.words = words["word"].unique().to_pylist()  # of the rows: programs may select some

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
