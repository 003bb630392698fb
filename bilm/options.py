"""The hyperparameters: frozen dataclasses that are stored in `options.json`.

Every key is declared once, with the rule for its value; reading, checking and writing follow from
that. Options of a new run are read strictly (`load_run_options`), those of a stored model leniently
(`load_model_options`): keys that do not shape the model are kept unchanged and written back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import logging

from bilm import schema
from bilm.errors import InvalidNumberOfCharacters, OptionsError
from bilm.lexicon_options import LexiconEncoderOptions, check_widest
from bilm.rules import (
    ACTIVATION,
    BOOLEAN,
    CHARACTERS,
    COUNT,
    FILTERS,
    LAYERS,
    LAYERS_OR_NONE,
    N_CHARACTERS,
    N_CHARACTERS_WITH_PADDING,
    NUMBER,
    POSITIVE,
    PROBABILITY,
    SHARE,
    SIZE,
    WORD_LENGTH,
)
from bilm.schema import Checked, Rule, key, unexpected

DIRECTIONS = ("forward", "backward")
MAX_SEED = 2**31 - 1  # seeds are int32 where dropout is drawn
LEARNING_RATES = {"adagrad": 0.2, "adam": 0.002}  # where none is given, by optimizer
DECAYS = ("none", "linear", "cosine")
SOFTMAX_BIASES = ("zeros", "log_uniform")
EXPORT_ID = "bilm_export"  # the key, and the attribute in HDF5, of what was exported together

OPTIMIZER = Rule(
    lambda value: isinstance(value, str) and value in LEARNING_RATES, " or ".join(LEARNING_RATES)
)
DECAY = Rule(lambda value: value in DECAYS, " or ".join(DECAYS))
SOFTMAX_BIAS = Rule(lambda value: value in SOFTMAX_BIASES, " or ".join(SOFTMAX_BIASES))


@dataclass(frozen=True)
class EmbeddingOptions(Checked):
    """The character embedding."""

    dim: int = key(SIZE)


@dataclass(frozen=True)
class CharCnnOptions(Checked):
    """The character CNN: `filters` holds pairs of width and number."""

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
    """One stack of LSTM layers; without projection `projection_dim` equals `dim`."""

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
    """What shapes a model. It reads characters by `char_cnn` or `lexicon_encoder`, else words.

    Args:
        bidirectional: None if the file does not say; the weights then decide.
        other: the rest of a stored file, unchanged, as are `lstm.other` and `char_cnn.other`.
    """

    lstm: LstmOptions = key(LstmOptions)
    char_cnn: CharCnnOptions | None = key(CharCnnOptions, None)
    bidirectional: bool | None = key(BOOLEAN, None)
    share_embedding_softmax: bool = key(BOOLEAN, False)
    lexicon_encoder: LexiconEncoderOptions | None = key(LexiconEncoderOptions, None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lexicon_encoder and (self.char_cnn or self.share_embedding_softmax):
            raise OptionsError("lexicon_encoder: beside char_cnn or a shared table, expected alone")
        if self.share_embedding_softmax and self.char_cnn:
            needs = "false with char_cnn, which has no word table to share"
            raise unexpected("share_embedding_softmax", True, needs)

    @property
    def reads_words(self) -> bool:
        """Whether tokens are rows of a word table whose vocabulary is a file beside the model."""
        return self.char_cnn is None and self.lexicon_encoder is None

    def with_table(self) -> ModelOptions:
        """Return the options of the same model on a table of its tokens' vectors."""
        return self.replace(char_cnn=None, lexicon_encoder=None)

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
        learning_rate: None: the optimizer's, in `LEARNING_RATES`. How `warmup_steps` and the keys
            of the decay change it, `bilm.training.schedule` says.
        state_reset_probability: that of a row to start afresh at a window's start; 0 never resets,
            as the reference, and leaves a start from zero state to chance.
        softmax_bias: what a new softmax's biases start at: 0, as in the reference, or the logarithm
            of the sampler's probability of each word, by its rank in the vocabulary.
        share_negatives: whether all replicas and both directions have the same negatives, so that
            workers exchange less.
    """

    ALLOWED = (EXPORT_ID,)  # of an export whose options a new run takes over

    bidirectional: bool = key(BOOLEAN)
    char_cnn: CharCnnOptions | None = key(CharCnnOptions, None)
    lstm: LstmOptions = key(LstmOptions)
    dropout: float = key(PROBABILITY)
    all_clip_norm_val: float = key(POSITIVE)
    optimizer: str = key(OPTIMIZER, "adagrad")
    learning_rate: float | None = key(POSITIVE, None)
    warmup_steps: int = key(COUNT, 0)
    decay: str = key(DECAY, "none")
    decay_start: float = key(SHARE, 0.0)
    decay_floor: float = key(SHARE, 0.0)
    n_epochs: int = key(NUMBER)
    n_train_tokens: int | None = key(NUMBER, None)
    batch_size: int = key(SIZE)
    n_tokens_vocab: int | None = key(SIZE, None)
    unroll_steps: int = key(SIZE)
    n_negative_samples_batch: int = key(SIZE)
    sample_softmax: bool = key(BOOLEAN, True)
    share_embedding_softmax: bool = key(BOOLEAN, False)
    state_reset_probability: float = key(PROBABILITY, 0.0)
    softmax_bias: str = key(SOFTMAX_BIAS, "zeros")
    share_negatives: bool = key(BOOLEAN, False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.char_cnn and self.char_cnn.n_characters != N_CHARACTERS:
            needs = f"{N_CHARACTERS} to train; the export adds the row of padding that makes 262"
            found = unexpected("char_cnn.n_characters", self.char_cnn.n_characters, needs)
            raise InvalidNumberOfCharacters(str(found))
        if self.learning_rate is None:
            object.__setattr__(self, "learning_rate", LEARNING_RATES[self.optimizer])
        _ = self.model  # raises an error for values that contradict each other

    def replace(self, **changes: Any) -> RunOptions:
        """Return a copy; another optimizer has its own learning rate unless one is given."""
        if changes.get("optimizer", self.optimizer) != self.optimizer:
            changes.setdefault("learning_rate", None)
        return super().replace(**changes)

    @property
    def model(self) -> ModelOptions:
        """What shapes the model."""
        shared = self.share_embedding_softmax
        return ModelOptions(self.lstm, self.char_cnn, self.bidirectional, shared)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunOptions:
        """Read the content of an `options.json`; unknown keys are an error."""
        return schema.read(cls, values, strict=True)


# What belongs to the model, the corpus, or a row's place in the text; the rest may change while a
# run lasts.
_FIXED = {field.name for field in schema.keys(ModelOptions)} | {
    "batch_size", "n_epochs", "n_tokens_vocab", "n_train_tokens", "optimizer", "unroll_steps",
}  # fmt: skip
CHANGEABLE = tuple(k.name for k in schema.keys(RunOptions) if k.name not in _FIXED)


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
