"""Usages of words in memory: the places where words occur, with a vector per layer. `usages_file`
stores them as a table, whose columns docs/usages.md describes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.errors import DataError, OptionsError
from bilm.support import optional

if TYPE_CHECKING:
    import pandas

VERSION = 1  # of the metadata of a table
WINDOW = 5  # words to each side of a usage that count as its context
BLANK = "\u00a0"  # replaces a blank inside a word, which CoNLL-U and lists of words allow
# Of a table, without the vectors
COLUMNS = (
    "word", "grouping", "identifier", "text", "line", "position", "sentence", "form", "lemma",
    "tag", "date", "description",
)  # fmt: skip


class Usage(NamedTuple):
    """A place where a word occurs, see docs/usages.md."""

    word: str
    grouping: str
    identifier: str
    text: str
    line: int
    position: int
    words: list[str]  # of the sentence
    lemma: str | None = None
    tag: str | None = None
    date: str | None = None
    description: str | None = None

    @property
    def form(self) -> str:
        """The word as it occurs."""
        return self.words[self.position]


def as_sentence(words: Iterable[str]) -> str:
    """Return words joined by blanks, which `split(" ")` separates again."""
    return " ".join(word.replace(" ", BLANK) for word in words)


@dataclass
class Grouping:
    """A text or a group of texts, such as a period."""

    name: str
    texts: Sequence[str]  # files
    sentences: int = 0  # number of sentences
    tokens: int = 0  # number of words


@dataclass(frozen=True)
class Description:
    """What a table of usages contains: the metadata of the file."""

    groupings: Sequence[Grouping]
    counts: Mapping[str, Mapping[str, int]]  # word -> grouping -> usages in the text
    layers: Sequence[int] = ()  # numbers of the stored layers; empty without vectors
    dim: int = 0  # features of a vector
    model: str = ""
    digest: str = ""  # SHA-256 of the model
    sample: int | None = None  # maximum number of usages per word and grouping; None for all
    seed: int = 0  # of the sample

    def as_json(self) -> str:
        """Return the text that the file contains."""
        return json.dumps({"version": VERSION, **asdict(self)})

    @staticmethod
    def from_json(text: bytes, path: str) -> Description:
        """Read the text of a file. Raises: DataError for another version of the table."""
        stored = json.loads(text)
        version = stored.pop("version")
        if version != VERSION:
            raise DataError(
                f"{path}: version {version} of the table; expected version {VERSION}; write the "
                "table again with bilm usages"
            )
        stored["groupings"] = tuple(Grouping(**grouping) for grouping in stored["groupings"])
        return Description(**stored)


@dataclass(frozen=True)
class Usages:
    """Usages in memory."""

    frame: pandas.DataFrame  # the columns except vectors, with index 0 ... N - 1
    arrays: Mapping[int, np.ndarray]  # by layer, float32 (N, D)
    description: Description  # counts, groupings and model

    def __len__(self) -> int:
        return len(self.frame)

    def __repr__(self) -> str:
        words, groupings = ", ".join(self.words), ", ".join(self.groupings)
        return f"<{len(self):,} usages of {words} in {groupings}; layers {self.layers}>"

    def _repr_html_(self) -> str:
        return self.frame.dropna(axis=1, how="all")._repr_html_()

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
        """Return the vectors of a layer, float32 (N, D); None for the highest layer. Raises:
        OptionsError if it is missing; DataError if the vectors are not finite."""
        number = max(self.arrays, default=0) if layer is None else layer
        if number not in self.arrays:
            raise OptionsError(
                f"layer {number} is not in the table of usages, only {self.layers}; write the "
                f"table with bilm usages --layers {number}"
            )
        if not np.isfinite(self.arrays[number]).all():
            raise DataError(f"the vectors of layer {number} contain values that are not finite")
        return self.arrays[number]

    def where(self, mask: np.ndarray | pandas.Series | Sequence[bool]) -> Usages:
        """Return the usages that a boolean mask (N,) selects."""
        return self._rows(np.flatnonzero(mask))

    def by_word(self, layers: Sequence[int] | None = None) -> Iterator[tuple[str, Usages]]:
        """Yield each word with its usages, in all layers; see `UsagesFile.by_word`."""
        places = self.frame.groupby("word").indices
        return ((word, self._rows(places[word])) for word in self.words)

    def sample(self, n: int, seed: int = 0) -> Usages:
        """Return at most `n` usages, drawn at random, in their order."""
        if len(self) <= n:
            return self
        chosen = np.random.default_rng(seed).choice(len(self), n, replace=False)
        return self._rows(np.sort(chosen))

    def nearest(self, row: int, n: int = 10, layer: int | None = None) -> pandas.DataFrame:
        """Return the `n` other usages whose vectors in a layer, None for the highest, are most
        similar to that of usage number `row`: rows of `frame` without its empty columns, the most
        similar first, with the cosine `similarity`. Raises: OptionsError for an unknown layer."""
        vectors = normalized(self.vectors(layer))
        similarity = vectors @ vectors[row]  # N
        order = np.argsort(-similarity, kind="stable")
        nearest = order[order != row][:n]
        frame = self.frame.dropna(axis=1, how="all")
        return frame.iloc[nearest].assign(similarity=similarity[nearest])

    def _rows(self, numbers: np.ndarray) -> Usages:
        frame = self.frame.iloc[numbers].reset_index(drop=True)
        arrays = {layer: vectors[numbers] for layer, vectors in self.arrays.items()}
        return Usages(frame, arrays, self.description)


def frame_of(usages: Iterable[Usage]) -> pandas.DataFrame:
    """Return the columns of usages, without vectors."""
    pandas = optional("pandas", "analysis", "tables of usages")
    rows = []
    for usage in usages:
        texts = {"sentence": as_sentence(usage.words), "form": as_sentence([usage.form])}
        rows.append(usage._asdict() | texts)
    return pandas.DataFrame(rows, columns=list(COLUMNS))


def words_near(sentence: str, position: int) -> list[str]:
    """Return the words at most `WINDOW` places from a word of a sentence."""
    words = sentence.split(" ")
    before = words[max(0, position - WINDOW) : position]
    after = words[position + 1 : position + 1 + WINDOW]
    return before + after


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Return vectors (..., D) divided by their Euclidean norms; vectors of zeros stay zero."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)
