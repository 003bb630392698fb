"""Options of a token encoder that looks words and characters up in lexicons of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bilm.errors import OptionsError
from bilm.rules import ACTIVATION, FILTERS, LAYERS_OR_NONE, LEXICON, SIZE, WORD_LENGTH
from bilm.schema import Checked, key, unexpected

# What lexicons hold besides words and characters. `BOS` and `EOS` also are the marks of a sentence.
OOV, PAD, BOW, EOW, BOS, EOS = "<oov>", "<pad>", "<bow>", "<eow>", "<bos>", "<eos>"
WORD_MARKS, CHARACTER_MARKS = (OOV, PAD), (OOV, PAD, BOW, EOW, BOS, EOS)


@dataclass(frozen=True)
class TableOptions(Checked):
    """A table of vectors, `n_rows` of width `dim`, and the lexicon that says whose they are."""

    dim: int = key(SIZE)
    n_rows: int = key(SIZE)
    lexicon: Mapping[str, int] = key(LEXICON)

    def __post_init__(self) -> None:
        super().__post_init__()
        for entry, id_ in self.lexicon.items():
            if not 0 <= id_ < self.n_rows:
                expected = f"at least 0 and less than {self.n_rows}, the rows of its table"
                raise unexpected(f"lexicon: id of {ascii(entry)[:40]}", id_, expected)


@dataclass(frozen=True)
class LexiconEncoderOptions(Checked):
    """The token encoder of ELMoForManyLangs.

    Args:
        words: the table of whole words; None without one.
        characters: the table of characters, which are code points; None without a CNN.
        activation, filters, n_highway: of the CNN, as in `CharCnnOptions`.
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
            raise OptionsError("words, characters: neither is there, expected one or both")
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
    """Refuse a filter that no token has room for. Raises: OptionsError."""
    widest = max(width for width, _ in filters)
    if widest > max_characters:
        limit = f"at most max_characters_per_token, {max_characters}"
        raise OptionsError(f"filters: found a filter of width {widest}, expected {limit}")
