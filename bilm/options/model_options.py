"""Options of a model, stored in `options.json`, which `bilm.options.run_options` reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from bilm.errors import OptionsError
from bilm.options import schema
from bilm.options.schema import Checked, Rule, key, unexpected

DIRECTIONS = ("forward", "backward")
PROFILE = "training_text"  # key with a `bilm.data.profile.Profile`
EVALUATION = "evaluation"  # key of an export with a `bilm.scoring.verdict.Measurement`
EXPORT_ID = "bilm_export"  # key and HDF5 attribute with the id shared by the files of an export
N_CHARACTERS = 261  # character rows that training learns: 256 bytes and 5 marks
N_CHARACTERS_WITH_PADDING = 262  # rows of an export, which adds a row of zeros for padding
# Entries of lexicons that are neither words nor characters. BOS and EOS also mark sentences.
OOV, PAD, BOW, EOW, BOS, EOS = "<oov>", "<pad>", "<bow>", "<eow>", "<bos>", "<eos>"
WORD_MARKS, CHARACTER_MARKS = (OOV, PAD), (OOV, PAD, BOW, EOW, BOS, EOS)

CHARACTERS = Rule(
    lambda value: type(value) is int and value in (N_CHARACTERS, N_CHARACTERS_WITH_PADDING),
    f"{N_CHARACTERS}, or {N_CHARACTERS_WITH_PADDING} in an exported file",
)


@dataclass(frozen=True)
class EmbeddingOptions(Checked):
    """The character embedding."""

    dim: int = key(schema.SIZE)


@dataclass(frozen=True)
class TableOptions(Checked):
    """A table of `n_rows` vectors of width `dim`, and the lexicon that maps entries to rows."""

    dim: int = key(schema.SIZE)
    n_rows: int = key(schema.SIZE)
    lexicon: Mapping[str, int] = key(schema.LEXICON)

    def _check(self) -> None:
        id_rule = schema.integer(0, self.n_rows - 1)
        for entry, id_ in self.lexicon.items():
            if not id_rule.holds(id_):
                raise unexpected(f"lexicon: id of {ascii(entry)[:40]}", id_, id_rule.expected)


@dataclass(frozen=True)
class CharCnnOptions(Checked):
    """The character CNN; `filters` contains pairs (width, number)."""

    words: ClassVar[TableOptions | None] = None  # see `LexiconEncoderOptions`

    activation: str = key(schema.ACTIVATION)
    embedding: EmbeddingOptions = key(EmbeddingOptions)
    filters: tuple[tuple[int, int], ...] = key(schema.FILTERS)
    max_characters_per_token: int = key(schema.WORD_LENGTH)
    n_characters: int = key(CHARACTERS)
    n_highway: int = key(schema.LAYERS_OR_NONE, 0, null=True)

    @property
    def characters(self) -> TableOptions:
        """The table of characters, without padding."""
        return TableOptions(self.embedding.dim, N_CHARACTERS, {})

    def _check(self) -> None:
        _check_filters(self)


@dataclass(frozen=True)
class LstmOptions(Checked):
    """One stack of LSTM layers. `projection_dim` equals `dim` if there is no projection."""

    dim: int = key(schema.SIZE)
    projection_dim: int = key(schema.SIZE)
    n_layers: int = key(schema.LAYERS)
    cell_clip: float | None = key(schema.POSITIVE, None)
    proj_clip: float | None = key(schema.POSITIVE, None)
    use_skip_connections: bool = key(schema.BOOLEAN, False)

    def _check(self) -> None:
        if self.projection_dim > self.dim:
            raise unexpected("projection_dim", self.projection_dim, f"at most dim, {self.dim}")


@dataclass(frozen=True)
class LexiconEncoderOptions(Checked):
    """The token encoder of ELMoForManyLangs: tables of whole words and of characters (code points),
    None if there is none, and the CNN's options, as in `CharCnnOptions`."""

    max_characters_per_token: int = key(schema.WORD_LENGTH)
    words: TableOptions | None = key(TableOptions, None)
    characters: TableOptions | None = key(TableOptions, None)
    activation: str = key(schema.ACTIVATION, "relu")
    filters: tuple[tuple[int, int], ...] | None = key(schema.FILTERS, None)
    n_highway: int = key(schema.LAYERS_OR_NONE, 0)

    def _check(self) -> None:
        if self.words is None and self.characters is None:
            raise OptionsError("words, characters: both are missing, expected at least one")
        for name, marks in (("words", WORD_MARKS), ("characters", CHARACTER_MARKS)):
            table = getattr(self, name)
            missing = [mark for mark in marks if table and mark not in table.lexicon]
            if missing:
                raise OptionsError(f"{name}.lexicon: {' '.join(missing)} missing")
        if self.characters is None:  # a published configuration has the CNN's options all the same
            object.__setattr__(self, "filters", None)
            object.__setattr__(self, "n_highway", 0)
            return
        if self.filters is None:
            raise OptionsError(f"filters: missing, expected {schema.FILTERS.expected}")
        _check_filters(self)


@dataclass(frozen=True)
class ModelOptions(Checked):
    """The architecture of a model. At most one of `char_cnn` and `lexicon_encoder`, the encoders of
    characters, is given; without them, tokens are words, whose table the softmax may share."""

    lstm: LstmOptions = key(LstmOptions)
    char_cnn: CharCnnOptions | None = key(CharCnnOptions, None)
    bidirectional: bool | None = key(schema.BOOLEAN, None)  # None: the weights decide
    share_embedding_softmax: bool = key(schema.BOOLEAN, False)
    lexicon_encoder: LexiconEncoderOptions | None = key(LexiconEncoderOptions, None)

    def _check(self) -> None:
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
        return self.encoder is None

    @property
    def encoder(self) -> CharCnnOptions | LexiconEncoderOptions | None:
        """The encoder of characters, or of words and characters; None for a table of words."""
        return self.char_cnn or self.lexicon_encoder

    @property
    def filters(self) -> tuple[tuple[int, int], ...]:
        """The filters of the character CNN, pairs (width, number); empty without a CNN."""
        return (self.encoder and self.encoder.filters) or ()

    @property
    def directions(self) -> tuple[str, ...]:
        """Names of the directions; both unless `bidirectional` is False."""
        return DIRECTIONS[:1] if self.bidirectional is False else DIRECTIONS

    def for_export(self) -> dict[str, Any]:
        """Return the `options.json` of an export: 262 characters and every required key."""
        values = self.to_dict()
        clips = {"cell_clip": self.lstm.cell_clip, "proj_clip": self.lstm.proj_clip}
        values["lstm"] |= clips  # written even if null because AllenNLP requires these keys
        if self.char_cnn:
            values["char_cnn"]["n_characters"] = N_CHARACTERS_WITH_PADDING
        return values


def _check_filters(encoder: CharCnnOptions | LexiconEncoderOptions) -> None:
    """Store filters as tuples. Raises: OptionsError if a filter is wider than a token."""
    pairs = tuple(map(tuple, encoder.filters or ()))
    object.__setattr__(encoder, "filters", pairs)
    widest = max(width for width, _ in pairs)
    if widest > encoder.max_characters_per_token:
        limit = f"at most max_characters_per_token, {encoder.max_characters_per_token}"
        raise OptionsError(f"filters: found a filter of width {widest}, expected {limit}")
