"""Vectors of words without context in word2vec's text form, which gensim reads."""

from collections.abc import Iterable
from pathlib import Path

from bilm.data.marks import MARKS
from bilm.errors import DataError
from bilm.inference.backend import open_backend
from bilm.inference.words import WordVectors
from bilm.storage.stored_model import StoredModel
from bilm.support.files import replacing


def write_word2vec(model: StoredModel, words: Iterable[str], output: str | Path) -> None:
    """Write the vectors of layer 0, float32 (P,), of distinct words, without marks of sentences: a
    line with the number of words and P, then each word with its numbers. Raises: DataError for a
    word that contains a blank."""
    distinct = [word for word in dict.fromkeys(words) if word not in ("", *MARKS)]
    for word in distinct:
        if len(word.split()) != 1:
            raise DataError(f"{output}: {word!r} contains a blank; expected one word per line")
    encode = WordVectors.with_vocabulary(open_backend(model), model.vocabulary_file())
    vectors = encode(distinct)  # n, P
    with replacing(output) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(f"{len(distinct)} {vectors.shape[1]}\n")
        for word, vector in zip(distinct, vectors.tolist(), strict=True):
            numbers = " ".join(format(value, ".9g") for value in vector)
            file.write(f"{word} {numbers}\n")
