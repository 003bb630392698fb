"""The vectors of words as files for TensorBoard's embedding projector."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np

from bilm.data.text import read_lines
from bilm.embedding.token_cache import WordVectors, find_vocabulary
from bilm.errors import DataError
from bilm.files import expanded
from bilm.folders import replacing_folder
from bilm.storage.load import load_bilm
from bilm.storage.locate import resolve

VECTORS, WORDS, CONFIG = "vectors.tsv", "words.tsv", "projector_config.pbtxt"
CONFIG_TEXT = f"""embeddings {{
  tensor_name: "words"
  tensor_path: "{VECTORS}"
  metadata_path: "{WORDS}"
}}
"""


def export_projector(
    options_file: str | Path,
    weight_file: str | Path | None,
    counts_file: str | Path,
    path: str | Path,
    max_words: int = 10_000,
    vocab_file: str | Path | None = None,
) -> int:
    """Write the context-free vectors of the most frequent words, with their counts.

    The folder is a log folder of TensorBoard; `vectors.tsv` and `words.tsv` also load at
    projector.tensorflow.org.

    Args:
        options_file, weight_file: see `ElmoEmbedder`.
        counts_file: a word, a tab and its count per line, as `bilm vocab --counts` writes it.
        path: the folder to write, replaced if it holds these files alone.
        max_words: write no more than the first of the file.
        vocab_file: one word a line, for a model that reads words; None for `vocab.txt` beside the
            options.
    Returns: the number of words.
    Raises: OptionsError, WeightsError; DataError for a line that is no word with its count.
    """
    words = _read_counts(expanded(counts_file), max_words)
    files = resolve(expanded(options_file), expanded(weight_file))
    model = load_bilm(*files, frozen=True)
    vocabulary = find_vocabulary(model.options, files[0], expanded(vocab_file))
    vectors = WordVectors(model, vocabulary)([word for word, _ in words])
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
                "count, as bilm vocab --counts writes them"
            )
        found.append((word, int(count)))
    if not found:
        raise DataError(f"{counts_file}: no word in it; expected lines of bilm vocab --counts")
    return found
