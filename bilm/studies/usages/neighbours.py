"""Words that are used like a word: the usages whose vectors are most similar to its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.errors import DataError
from bilm.studies.usages.usages import Usages, as_sentence, normalized

if TYPE_CHECKING:
    from bilm.embedding import ElmoEmbedder


class Neighbour(NamedTuple):
    """A usage, and the cosine of its vector and the vector of a word."""

    similarity: float
    word: str  # as it occurs
    line: int  # number of the sentence, from 1
    position: int  # in the sentence, from 0
    sentence: str


def words_of_text(
    embedder: ElmoEmbedder, sentences: Sequence[Sequence[str]], layer: int | None = None
) -> tuple[np.ndarray, list[Neighbour]]:
    """Return the vectors of all words of a text in a layer, None for the highest, float32 (N, D),
    and the words."""
    number = embedder.n_layers - 1 if layer is None else layer
    vectors = [np.empty((0, embedder.dim), np.float32)]
    vectors += (layers[0] for layers in embedder.embed_sentences(sentences, [number]))
    words = []
    for line, sentence in enumerate(sentences, 1):
        text = as_sentence(sentence)
        words += [Neighbour(1.0, word, line, i, text) for i, word in enumerate(sentence)]
    return np.concatenate(vectors), words


def words_of_usages(usages: Usages, layer: int | None = None) -> tuple[np.ndarray, list[Neighbour]]:
    """Return the same of usages."""
    rows = usages.frame[["form", "line", "position", "sentence"]].itertuples(index=False)
    return usages.vectors(layer), [Neighbour(1.0, *row) for row in rows]


def find_neighbours(
    vectors: np.ndarray,
    words: Sequence[Neighbour],
    is_chosen: Callable[[Neighbour], bool],
    n: int = 10,
    *,
    each_word_once: bool = False,
    is_left_out: Callable[[Neighbour], bool] = lambda word: False,
) -> list[Neighbour]:
    """Return the words whose vectors are most similar to the mean direction of chosen ones.

    Args:
        vectors, words: result of `words_of_text` or `words_of_usages`.
        is_chosen: whether a word is one of these, which are not in the result.
        n: maximum number of results, the most similar first.
        each_word_once: whether only the first usage of each word counts, regardless of case.
        is_left_out: whether a word is not in the result either.
    Raises: DataError if no word is chosen.
    """
    chosen = [k for k, word in enumerate(words) if is_chosen(word)]
    if not chosen:
        raise DataError("found no usage of the word; compare case, spelling and line with the text")
    directions = normalized(vectors)
    mean = directions[chosen].mean(axis=0)
    similarity = directions @ normalized(mean)  # N
    similarity[chosen] = -np.inf

    nearest: dict[object, Neighbour] = {}
    for k in np.argsort(-similarity, kind="stable")[: len(words) - len(chosen)].tolist():
        word = words[k]._replace(similarity=float(similarity[k]))
        if not is_left_out(word):
            nearest.setdefault(word.word.casefold() if each_word_once else k, word)
        if len(nearest) == n:
            break
    return list(nearest.values())
