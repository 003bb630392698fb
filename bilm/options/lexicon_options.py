"""Options of a token encoder that has its own lexicons of words and characters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bilm.errors import OptionsError
from bilm.options.schema import (
    ACTIVATION,
    FILTERS,
    LAYERS_OR_NONE,
    LEXICON,
    SIZE,
    WORD_LENGTH,
    Checked,
    key,
    unexpected,
)

# Entries of lexicons that are neither words nor characters. BOS and EOS also mark sentences.
OOV, PAD, BOW, EOW, BOS, EOS = "<oov>", "<pad>", "<bow>", "<eow>", "<bos>", "<eos>"
WORD_MARKS, CHARACTER_MARKS = (OOV, PAD), (OOV, PAD, BOW, EOW, BOS, EOS)


@dataclass(frozen=True)
class TableOptions(Checked):
    """A table of `n_rows` vectors of width `dim`, and the lexicon that maps entries to rows."""

    dim: int = key(SIZE)
    n_rows: int = key(SIZE)
    lexicon: Mapping[str, int] = key(LEXICON)

    def __post_init__(self) -> None:
        super().__post_init__()
        for entry, id_ in self.lexicon.items():
            if not 0 <= id_ < self.n_rows:
                expected = f"at least 0 and less than n_rows, {self.n_rows}"
                raise unexpected(f"lexicon: id of {ascii(entry)[:40]}", id_, expected)


@dataclass(frozen=True)
class LexiconEncoderOptions(Checked):
    """The token encoder of ELMoForManyLangs.

    Args:
        words: the table of whole words; None if there is none.
        characters: the table of characters (code points); None if there is no CNN.
        activation, filters, n_highway: the CNN's options, as in `CharCnnOptions`.
    """

    max_characters_per_token: int = key(WORD_LENGTH)
    words: TableOptions | None = key(TableOptions, None)
    characters: TableOptions | None = key(TableOptions, None)
    activation: str = key(ACTIVATION, "relu")
    filters: tuple[tuple[int, int], ...] | None = key(FILTERS, None)
    n_highway: int = key(LAYERS_OR_NONE, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.words is None and self.characters is None:
            raise OptionsError("words, characters: both are missing, expected at least one")
        for name, marks in (("words", WORD_MARKS), ("characters", CHARACTER_MARKS)):
            table = getattr(self, name)
            missing = [mark for mark in marks if table and mark not in table.lexicon]
            if missing:
                raise OptionsError(f"{name}.lexicon: {' '.join(missing)} missing")
        if self.characters is None:
            return
        if self.filters is None:
            raise OptionsError(f"filters: missing, expected {FILTERS.expected}")
        object.__setattr__(self, "filters", tuple(tuple(pair) for pair in self.filters))
        check_widest(self.filters, self.max_characters_per_token)


def check_widest(filters: tuple[tuple[int, int], ...], max_characters: int) -> None:
    """Check that no filter is wider than a token. Raises: OptionsError."""
    widest = max(width for width, _ in filters)
    if widest > max_characters:
        limit = f"at most max_characters_per_token, {max_characters}"
        raise OptionsError(f"filters: found a filter of width {widest}, expected {limit}")
