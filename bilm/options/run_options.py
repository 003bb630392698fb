"""Options of a training run; reading `options.json`; the options that are shipped with bilm."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import logging

from bilm.errors import InvalidNumberOfCharacters, OptionsError
from bilm.options import schema
from bilm.options.model_options import (
    EVALUATION,
    EXPORT_ID,
    N_CHARACTERS,
    PROFILE,
    CharCnnOptions,
    LstmOptions,
    ModelOptions,
)
from bilm.options.schema import Checked, choice, key, unexpected

MAX_SEED = schema.MAX_INT32  # dropout takes int32 seeds
# Default learning rates by optimizer.
LEARNING_RATES = {"adagrad": 0.2, "adam": 0.002, "muon": 0.006}
AUTO = "auto"  # the name of options that `bilm.training.auto` chooses
# Functions from the share of the decay that is done to the share of the rate that is left.
DECAYS: dict[str, Callable[[float], float]] = {
    "none": lambda done: 1.0,
    "linear": lambda done: 1 - done,
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
}


@dataclass(frozen=True, kw_only=True)
class RunOptions(Checked):
    """All options of a new run, flat as in `options.json`; docs/options.md describes them. Numbers
    of the text and the vocabulary that are None are counted; see
    `bilm.training.sampling.with_unknown` for `once_from`."""

    STRICT = True
    ALLOWED = (EXPORT_ID, EVALUATION, PROFILE)  # in the options of a run or an export

    bidirectional: bool = key(schema.BOOLEAN)
    char_cnn: CharCnnOptions | None = key(CharCnnOptions, None)
    lstm: LstmOptions = key(LstmOptions)
    dropout: float = key(schema.PROBABILITY)
    all_clip_norm_val: float = key(schema.POSITIVE)
    optimizer: str = key(choice(*LEARNING_RATES), "adagrad")
    learning_rate: float | None = key(schema.POSITIVE, None)
    warmup_steps: int = key(schema.COUNT, 0)
    decay: str = key(choice(*DECAYS), "none")
    decay_start: float = key(schema.SHARE, 0.0)
    decay_floor: float = key(schema.SHARE, 0.0)
    n_epochs: int = key(schema.NUMBER)
    n_train_tokens: int | None = key(schema.NUMBER, None)
    batch_size: int = key(schema.SIZE)
    n_tokens_vocab: int | None = key(schema.SIZE, None)
    once_from: int | None = key(schema.SIZE, None)
    unroll_steps: int = key(schema.SIZE)
    n_negative_samples_batch: int = key(schema.SIZE)
    sample_softmax: bool = key(schema.BOOLEAN, True)
    share_embedding_softmax: bool = key(schema.BOOLEAN, False)
    state_reset_probability: float = key(schema.PROBABILITY, 0.0)
    softmax_bias: str = key(choice("zeros", "log_uniform"), "zeros")
    variational_dropout: bool = key(schema.BOOLEAN, False)
    embedding_dropout: float = key(schema.PROBABILITY, 0.0)
    weight_decay: float = key(schema.PROBABILITY, 0.0)

    def _check(self) -> None:
        if self.char_cnn and self.char_cnn.n_characters != N_CHARACTERS:
            needs = f"{N_CHARACTERS} for training; an export adds the padding row and has 262"
            error = unexpected("char_cnn.n_characters", self.char_cnn.n_characters, needs)
            raise InvalidNumberOfCharacters(str(error))
        if self.learning_rate is None:
            object.__setattr__(self, "learning_rate", LEARNING_RATES[self.optimizer])
        _ = self.model  # raises an error for values that contradict each other

    def replace(self, **changes: Any) -> RunOptions:
        """Return a copy; changing the optimizer also selects its default learning rate."""
        if changes.get("optimizer", self.optimizer) != self.optimizer:
            changes.setdefault("learning_rate", None)
        return super().replace(**changes)

    @property
    def model(self) -> ModelOptions:
        """The architecture of the model."""
        shared = self.share_embedding_softmax
        return ModelOptions(self.lstm, self.char_cnn, self.bidirectional, shared)


# The keys that a continued run may change: none of the model, the text or its reading order.
CHANGEABLE = (
    "dropout", "all_clip_norm_val", "learning_rate", "warmup_steps", "decay", "decay_start",
    "decay_floor", "n_negative_samples_batch", "sample_softmax", "state_reset_probability",
    "softmax_bias", "variational_dropout", "embedding_dropout", "weight_decay",
)  # fmt: skip
# Keys that it must not change: the position in the text and the slots depend on them.
FIXED = ("unroll_steps", "optimizer")


def load_run_options(name_or_path: str | Path) -> RunOptions:
    """Read options of a run by a path, or a shipped name such as `tiny`. Raises: OptionsError."""
    name, packaged = str(name_or_path), packaged_options()
    is_path = os.sep in name or name.endswith(".json") or os.path.exists(name)
    if name not in packaged and not is_path:
        what = "chosen by `bilm train` for a text" if name == AUTO else "unknown options"
        raise OptionsError(f"{name}: {what}, expected a path or one of {', '.join(packaged)}")
    return schema.load(RunOptions, packaged.get(name, name))


def load_model_options(path: str | Path) -> ModelOptions:
    """Read the options of a stored model; warn of unused keys. Raises: OptionsError."""
    options = schema.load(ModelOptions, path)
    known = {*RunOptions.ALLOWED, *(field.name for field in schema.keys(RunOptions))}
    unknown = [name for name in options.other_names() if name not in known]
    if unknown:
        logging.warning("%s: these keys are kept but not used: %s", path, ", ".join(unknown))
    return options


def packaged_options() -> dict[str, Path]:
    """Return the shipped options files by name, from the package or its checkout."""
    here = Path(__file__).resolve().parents[1]
    folder = here / "_options"
    folder = folder if folder.is_dir() else here.parent / "options"
    return {path.stem: path for path in sorted(folder.glob("*.json"))}
