"""The hyperparameters: frozen dataclasses that are stored in `options.json`.

Every key is declared once, with the rule for its value; reading, checking and writing follow from
that. Options of a new run are read strictly (`load_run_options`), those of a stored model leniently
(`load_model_options`): keys that do not shape the model are kept unchanged and written back.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import logging

from bilm import schema
from bilm.errors import InvalidNumberOfCharacters, OptionsError
from bilm.schema import Checked, Rule, key, unexpected

DIRECTIONS = ("forward", "backward")
N_CHARACTERS = 261  # what training learns: 256 bytes and 5 marks
N_CHARACTERS_WITH_PADDING = 262  # what is exported: a row of zeros above them, for padding
EXPORT_ID = "bilm_export"  # the key, and the attribute in HDF5, of what was exported together
MAX_SIZE = 2**31 - 1  # of an axis: ids and places in tables are int32
MAX_LAYERS = 128  # of LSTMs, of highways and of filters: each takes milliseconds to make
MAX_SEED = 2**31 - 1  # seeds are int32 where dropout is drawn
MIN_FLOAT32, MAX_FLOAT32 = 1e-37, 3e38  # beyond them float32 has 0 and infinity
MAX_WORD_LENGTH = 10_000  # every token of a batch takes room for so many characters


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and abs(value) <= sys.float_info.max  # neither NaN nor infinite


def _is_filters(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and 0 < len(value) <= MAX_LAYERS
        and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value)
        and all(_is_integer(number) and 0 < number <= MAX_SIZE for pair in value for number in pair)
    )


_BOOLEAN = Rule(lambda value: isinstance(value, bool), "true or false")
_NUMBER = Rule(lambda value: _is_integer(value) and value > 0, "a positive integer")
_SIZE = Rule(
    lambda value: _is_integer(value) and 0 < value <= MAX_SIZE,
    f"a positive integer up to {MAX_SIZE}",
)
_LAYERS = Rule(
    lambda value: _is_integer(value) and 0 < value <= MAX_LAYERS,
    f"an integer from 1 to {MAX_LAYERS}",
)
_LAYERS_OR_NONE = Rule(
    lambda value: _is_integer(value) and 0 <= value <= MAX_LAYERS,
    f"an integer from 0 to {MAX_LAYERS}",
)
_POSITIVE = Rule(
    lambda value: _is_number(value) and MIN_FLOAT32 <= value <= MAX_FLOAT32,
    f"a positive number from {MIN_FLOAT32:g} to {MAX_FLOAT32:g}, which float32 holds",
)
_PROBABILITY = Rule(lambda value: _is_number(value) and 0 <= value < 1, "a number in [0, 1)")
_ACTIVATION = Rule(lambda value: value in ("relu", "tanh"), '"relu" or "tanh"')
_FILTERS = Rule(
    _is_filters, f"a list of 1 to {MAX_LAYERS} pairs [width, number] of positive integers"
)
_WORD_LENGTH = Rule(
    lambda value: _is_integer(value) and 3 <= value <= MAX_WORD_LENGTH,
    f"an integer from 3 (the begin mark, one character, the end mark) to {MAX_WORD_LENGTH}",
)
_CHARACTERS = Rule(
    lambda value: _is_integer(value) and value in (N_CHARACTERS, N_CHARACTERS_WITH_PADDING),
    f"{N_CHARACTERS}, or {N_CHARACTERS_WITH_PADDING} in an exported file",
)


@dataclass(frozen=True)
class EmbeddingOptions(Checked):
    """The character embedding."""

    dim: int = key(_SIZE)


@dataclass(frozen=True)
class CharCnnOptions(Checked):
    """The character CNN: `filters` holds pairs of width and number."""

    activation: str = key(_ACTIVATION)
    embedding: EmbeddingOptions = key(EmbeddingOptions)
    filters: tuple[tuple[int, int], ...] = key(_FILTERS)
    max_characters_per_token: int = key(_WORD_LENGTH)
    n_characters: int = key(_CHARACTERS)
    n_highway: int = key(_LAYERS_OR_NONE, 0, null=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "filters", tuple(tuple(pair) for pair in self.filters))
        widest = max(width for width, _ in self.filters)
        if widest > self.max_characters_per_token:
            limit = f"at most max_characters_per_token, {self.max_characters_per_token}"
            raise OptionsError(f"filters: found a filter of width {widest}, expected {limit}")


@dataclass(frozen=True)
class LstmOptions(Checked):
    """One stack of LSTM layers; without projection `projection_dim` equals `dim`."""

    dim: int = key(_SIZE)
    projection_dim: int = key(_SIZE)
    n_layers: int = key(_LAYERS)
    cell_clip: float | None = key(_POSITIVE, None)
    proj_clip: float | None = key(_POSITIVE, None)
    use_skip_connections: bool = key(_BOOLEAN, False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.projection_dim > self.dim:
            raise unexpected("projection_dim", self.projection_dim, f"at most dim, {self.dim}")


@dataclass(frozen=True)
class ModelOptions(Checked):
    """What shapes a model. Without `char_cnn` it reads words, not characters.

    Args:
        bidirectional: None if the file does not say; the weights then decide.
        other: the rest of a stored file, unchanged, as are `lstm.other` and `char_cnn.other`.
    """

    lstm: LstmOptions = key(LstmOptions)
    char_cnn: CharCnnOptions | None = key(CharCnnOptions, None)
    bidirectional: bool | None = key(_BOOLEAN, None)
    share_embedding_softmax: bool = key(_BOOLEAN, False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share_embedding_softmax and self.char_cnn:
            needs = "false with char_cnn, which has no word table to share"
            raise unexpected("share_embedding_softmax", True, needs)

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions in which the model reads; both unless the options say otherwise."""
        return DIRECTIONS[:1] if self.bidirectional is False else DIRECTIONS

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelOptions:
        """Read the content of a stored `options.json`; unknown keys are kept."""
        return schema.read(cls, values, strict=False)

    def for_export(self) -> dict[str, Any]:
        """Return the content for an exported model: 262 characters, and the keys readers need."""
        values = self.to_dict()
        clips = {"cell_clip": self.lstm.cell_clip, "proj_clip": self.lstm.proj_clip}
        values["lstm"] |= clips  # written even if null, since AllenNLP requires these keys
        if self.char_cnn:
            values["char_cnn"]["n_characters"] = N_CHARACTERS_WITH_PADDING
        return values


@dataclass(frozen=True, kw_only=True)
class RunOptions(Checked):
    """Everything a new run needs, flat as in `options.json`.

    Args:
        n_train_tokens: predictions an epoch; None: counted from the corpus.
        n_tokens_vocab: None: taken from the vocabulary file.
        state_reset_probability: that of a row to start afresh at a window's start; 0 never resets,
            as the reference, and leaves a start from zero state to chance.
    """

    ALLOWED = (EXPORT_ID,)  # of an export whose options a new run takes over

    bidirectional: bool = key(_BOOLEAN)
    char_cnn: CharCnnOptions | None = key(CharCnnOptions, None)
    lstm: LstmOptions = key(LstmOptions)
    dropout: float = key(_PROBABILITY)
    all_clip_norm_val: float = key(_POSITIVE)
    learning_rate: float = key(_POSITIVE, 0.2)
    n_epochs: int = key(_NUMBER)
    n_train_tokens: int | None = key(_NUMBER, None)
    batch_size: int = key(_SIZE)
    n_tokens_vocab: int | None = key(_SIZE, None)
    unroll_steps: int = key(_SIZE)
    n_negative_samples_batch: int = key(_SIZE)
    sample_softmax: bool = key(_BOOLEAN, True)
    share_embedding_softmax: bool = key(_BOOLEAN, False)
    state_reset_probability: float = key(_PROBABILITY, 0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.char_cnn and self.char_cnn.n_characters != N_CHARACTERS:
            needs = f"{N_CHARACTERS} to train; the export adds the row of padding that makes 262"
            found = unexpected("char_cnn.n_characters", self.char_cnn.n_characters, needs)
            raise InvalidNumberOfCharacters(str(found))
        _ = self.model  # refuses what contradicts itself

    @property
    def model(self) -> ModelOptions:
        """What shapes the model."""
        shared = self.share_embedding_softmax
        return ModelOptions(self.lstm, self.char_cnn, self.bidirectional, shared)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunOptions:
        """Read the content of an `options.json`; unknown keys are an error."""
        return schema.read(cls, values, strict=True)


def load_run_options(name_or_path: str | Path) -> RunOptions:
    """Read the options of a new run: a name such as `tiny`, or a path.

    Raises: OptionsError, naming the file and the key that is missing, unknown or invalid.
    """
    name, packaged = str(name_or_path), _packaged()
    is_path = Path(name).name != name or name.endswith(".json") or Path(name).exists()
    if name not in packaged and not is_path:
        known = ", ".join(packaged)
        raise OptionsError(f"{name}: no such options, expected a path or one of {known}")
    return schema.load(RunOptions, packaged.get(name, name), strict=True)


def load_model_options(path: str | Path) -> ModelOptions:
    """Read the options of a stored model; one warning names the keys that are not used.

    Raises: OptionsError, naming the file and the key, if a key that shapes the model is invalid.
    """
    options = schema.load(ModelOptions, path, strict=False)
    known = {EXPORT_ID, *(field.name for field in schema.keys(RunOptions))}
    unknown = [name for name in options.other_names() if name not in known]
    if unknown:
        logging.warning("%s: keys kept but not used: %s", path, ", ".join(unknown))
    return options


def write_options(path: str | Path, values: Mapping[str, Any]) -> None:
    """Write the content of an `options.json`, whole or not at all."""
    schema.write(path, values)


def _packaged() -> dict[str, Path]:
    """Return the options files that come with bilm, by name: in the package or its checkout."""
    here = Path(__file__).resolve().parent
    folder = here / "_options"
    folder = folder if folder.is_dir() else here.parent / "options"
    return {path.stem: path for path in sorted(folder.glob("*.json"))}
