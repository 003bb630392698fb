"""Vectors of words without context in word2vec's text form, which gensim reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bilm.data.vocabulary import MARKS
from bilm.errors import DataError
from bilm.inference.backend import open_backend
from bilm.inference.words import WordVectors
from bilm.storage.stored_model import StoredModel
from bilm.support.files import replacing


def write_word2vec(model: StoredModel, words: Iterable[str], output: str | Path) -> None:
    """Write the vectors of layer 0, float32 (P,), of distinct words; marks are left out."""
    chosen = [word for word in dict.fromkeys(words) if word not in ("", *MARKS)]
    if found := next((word for word in chosen if len(word.split()) != 1), None):
        raise DataError(f"{output}: {found!r} contains a blank; expected one word per line")
    vectors = WordVectors(open_backend(model), model.vocabulary_file())(chosen)
    with replacing(output) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(f"{len(chosen)} {vectors.shape[1]}\n")
        for word, vector in zip(chosen, vectors.tolist(), strict=True):
            file.write(f"{word} {' '.join(format(x, '.9g') for x in vector)}\n")
