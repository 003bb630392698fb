"""Computing the vectors of usages that were found in texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from bilm.studies.usages.finding import FoundUsages, find_usages, open_texts, parse_query
from bilm.studies.usages.usages import Usages, frame_of
from bilm.studies.usages.usages_file import UsagesFile, write_table
from bilm.support import Progress, protect, scratch

if TYPE_CHECKING:
    from bilm.embedding import ElmoEmbedder
    from bilm.storage import StoredModel


def collect_usages(
    model: str | Path | StoredModel,
    words: Iterable[str],
    texts: Mapping[str, str | Path | Sequence[str | Path]],
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
    """Compute the vectors of usages and write their table, in bounded memory.

    Each sentence is embedded once from zero state, in the order of the texts. A temporary file
    beside the output contains all vectors until they are written in the order of the table.
    `layers`: numbers of those to store; None for all. Raises: OptionsError for a layer that does
    not exist; DataError if `output` is one of the texts or belongs to a model.
    """
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
        write_table(output, Usages(frame_of(usages), arrays, description), dtype)
    return UsagesFile(output)
