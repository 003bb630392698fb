"""Export of the vectors of words for TensorBoard's embedding projector."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np

from bilm.data.text import read_lines
from bilm.embedding.token_cache import WordVectors
from bilm.errors import DataError
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.files import expanded, replacing_folder

VECTORS, WORDS, CONFIG = "vectors.tsv", "words.tsv", "projector_config.pbtxt"
CONFIG_TEXT = f"""embeddings {{
  tensor_name: "words"
  tensor_path: "{VECTORS}"
  metadata_path: "{WORDS}"
}}
"""


def export_projector(
    options_file: str | Path | StoredModel,
    weight_file: str | Path | None,
    counts_file: str | Path,
    path: str | Path,
    max_words: int = 10_000,
    vocab_file: str | Path | None = None,
) -> int:
    """Write the context-independent vectors of the most frequent words, with their counts.

    The folder is a log folder for TensorBoard; `vectors.tsv` and `words.tsv` also load at
    projector.tensorflow.org.

    Args:
        options_file, weight_file: see `ElmoEmbedder`.
        counts_file: per line a word, a tab and its count, as written by `bilm vocab --counts`.
        path: the folder to write, replaced if it contains these files only.
        max_words: maximum number of words, from the start of the file.
        vocab_file: file with one word per line, for a model that reads words; None for `vocab.txt`
            beside the options.
    Returns: the number of words.
    Raises: OptionsError, WeightsError; DataError for a line without a word and a count.
    """
    words = _read_counts(expanded(counts_file), max_words)
    stored = open_model(options_file, weight_file)
    vocabulary = stored.vocabulary_file(vocab_file)
    stored.check_words(vocabulary)
    vectors = WordVectors(stored.build(frozen=True), vocabulary)([word for word, _ in words])
    with replacing_folder(path, CONFIG, (VECTORS, WORDS)) as folder:
        np.savetxt(folder / VECTORS, vectors, "%.6g", "\t")
        rows = ["word\tcount", *(f"{word}\t{count}" for word, count in words)]
        (folder / WORDS).write_text("\n".join(rows) + "\n", encoding="utf-8")
        (folder / CONFIG).write_text(CONFIG_TEXT, encoding="utf-8")
    return len(words)


def _read_counts(counts_file: str | Path, max_words: int) -> list[tuple[str, int]]:
    found = []
    for number, line in islice(read_lines(counts_file), max_words):
        word, _, count = line.partition("\t")
        if not (word and count.isascii() and count.isdecimal()):
            raise DataError(
                f"{counts_file}, line {number}: {line[:40]!r}; expected a word, a tab and its "
                "count, as written by bilm vocab --counts"
            )
        found.append((word, int(count)))
    if not found:
        raise DataError(
            f"{counts_file}: found no words; expected lines written by bilm vocab --counts"
        )
    return found
