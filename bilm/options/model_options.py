"""Options of a model, stored in `options.json`.

`load_run_options` reads the options of a new run and refuses unknown keys. `load_model_options`
reads the options of a stored model, keeps unknown keys unchanged and writes them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bilm.errors import OptionsError
from bilm.options import schema
from bilm.options.lexicon_options import LexiconEncoderOptions, check_widest
from bilm.options.schema import (
    ACTIVATION,
    BOOLEAN,
    FILTERS,
    LAYERS,
    LAYERS_OR_NONE,
    POSITIVE,
    SIZE,
    WORD_LENGTH,
    Checked,
    Rule,
    key,
    unexpected,
)

DIRECTIONS = ("forward", "backward")
EXPORT_ID = "bilm_export"  # key and HDF5 attribute with the id shared by the files of an export
N_CHARACTERS = 261  # character rows that training learns: 256 bytes and 5 marks
N_CHARACTERS_WITH_PADDING = 262  # rows of an export, which adds a row of zeros for padding

CHARACTERS = Rule(
    lambda value: type(value) is int and value in (N_CHARACTERS, N_CHARACTERS_WITH_PADDING),
    f"{N_CHARACTERS}, or {N_CHARACTERS_WITH_PADDING} in an exported file",
)


@dataclass(frozen=True)
class EmbeddingOptions(Checked):
    """The character embedding."""

    dim: int = key(SIZE)


@dataclass(frozen=True)
class CharCnnOptions(Checked):
    """The character CNN; `filters` contains pairs (width, number)."""

    activation: str = key(ACTIVATION)
    embedding: EmbeddingOptions = key(EmbeddingOptions)
    filters: tuple[tuple[int, int], ...] = key(FILTERS)
    max_characters_per_token: int = key(WORD_LENGTH)
    n_characters: int = key(CHARACTERS)
    n_highway: int = key(LAYERS_OR_NONE, 0, null=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "filters", tuple(tuple(pair) for pair in self.filters))
        check_widest(self.filters, self.max_characters_per_token)


@dataclass(frozen=True)
class LstmOptions(Checked):
    """One stack of LSTM layers. `projection_dim` equals `dim` if there is no projection."""

    dim: int = key(SIZE)
    projection_dim: int = key(SIZE)
    n_layers: int = key(LAYERS)
    cell_clip: float | None = key(POSITIVE, None)
    proj_clip: float | None = key(POSITIVE, None)
    use_skip_connections: bool = key(BOOLEAN, False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.projection_dim > self.dim:
            raise unexpected("projection_dim", self.projection_dim, f"at most dim, {self.dim}")


@dataclass(frozen=True)
class ModelOptions(Checked):
    """The architecture of a model.

    Args:
        lstm: the LSTM stacks.
        char_cnn: encoder of characters; None if tokens are words or `lexicon_encoder` is given.
        bidirectional: None if the file has no such key; the weights then decide.
        share_embedding_softmax: whether the softmax uses the table of word vectors.
        lexicon_encoder: encoder of ELMoForManyLangs.
        other: other keys of a stored file, unchanged; also in `lstm` and `char_cnn`.
    """

    lstm: LstmOptions = key(LstmOptions)
    char_cnn: CharCnnOptions | None = key(CharCnnOptions, None)
    bidirectional: bool | None = key(BOOLEAN, None)
    share_embedding_softmax: bool = key(BOOLEAN, False)
    lexicon_encoder: LexiconEncoderOptions | None = key(LexiconEncoderOptions, None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lexicon_encoder and (self.char_cnn or self.share_embedding_softmax):
            raise OptionsError(
                "lexicon_encoder: excludes char_cnn and share_embedding_softmax; remove them"
            )
        if self.share_embedding_softmax and self.char_cnn:
            needs = "false with char_cnn, which has no word table to share"
            raise unexpected("share_embedding_softmax", True, needs)

    @property
    def reads_words(self) -> bool:
        """Whether tokens are rows of a word table; its vocabulary is a separate file."""
        return self.char_cnn is None and self.lexicon_encoder is None

    def with_table(self) -> ModelOptions:
        """Return the options of the same model with a table of token vectors as its encoder."""
        return self.replace(char_cnn=None, lexicon_encoder=None)

    @property
    def directions(self) -> tuple[str, ...]:
        """Names of the directions; both unless `bidirectional` is False."""
        return DIRECTIONS[:1] if self.bidirectional is False else DIRECTIONS

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelOptions:
        """Build from the content of a stored `options.json`; unknown keys are kept."""
        return schema.read(cls, values, strict=False)

    def for_export(self) -> dict[str, Any]:
        """Return the `options.json` of an export: 262 characters and every required key."""
        values = self.to_dict()
        clips = {"cell_clip": self.lstm.cell_clip, "proj_clip": self.lstm.proj_clip}
        values["lstm"] |= clips  # written even if null because AllenNLP requires these keys
        if self.char_cnn:
            values["char_cnn"]["n_characters"] = N_CHARACTERS_WITH_PADDING
        return values
