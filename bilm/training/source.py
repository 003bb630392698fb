"""The stored model that fine-tuning starts from."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from bilm.data.vocabulary import Vocabulary
from bilm.errors import BilmError, DataError, WeightsError
from bilm.language_model import BiLM
from bilm.options.model_options import N_CHARACTERS
from bilm.options.run_options import CHANGEABLE, RunOptions
from bilm.storage.run_record import Finetuning
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.files import expanded
from bilm.support.model_files import VOCABULARY
from bilm.support.urls import masked
from bilm.tensors import SOFTMAX
from bilm.training.run_folder import RunFolder

# Values of options without a default, if the source omits them.
FALLBACKS = {
    "dropout": 0.1,
    "all_clip_norm_val": 10.0,
    "batch_size": 128,
    "unroll_steps": 20,
    "n_negative_samples_batch": 8192,
}
# Options of training that a run does not inherit from its source.
NOT_INHERITED = {
    "n_epochs": 1,
    "state_reset_probability": 0.05,
    "n_train_tokens": None,
    "n_tokens_vocab": None,
    "once_from": None,
}
# The slots are new, as in the source's first step, but the weights are not, so a tenth of the
# source's warm-up is enough. It is not shortened below 15 steps, so that repeated fine-tuning does
# not shorten it each time.
WARMUP_SHARE, SHORT_WARMUP = 10, 15


class Source:
    """The stored model that fine-tuning starts from; for its arguments, see `open_model`.

    Attributes: `model`, the `StoredModel`; `id`, its names, as absolute paths if they exist;
        `vocab`, its vocabulary, or None; `has_new_words`, whether a run predicts other words.
    Raises: OptionsError, WeightsError.
    """

    def __init__(self, model: str | Path | StoredModel, weights: str | Path | None = None):
        self.model = open_model(model, weights)
        self.model.require_trainable("be fine-tuned")
        paths = ((name, Path(expanded(name))) for name in self.model.arguments)
        self.id = [str(p.resolve()) if p.exists() else masked(name) for name, p in paths]
        self.vocab: Vocabulary | None = None
        self.has_new_words = False

    def choose_vocabulary(self, of_model: str | Path | None, new: str | Path | None) -> Vocabulary:
        """Return the vocabulary of a run, from the arguments of `finetune`, and keep the source's.
        Raises: DataError if one is missing or does not fit the source."""
        model = self.model
        reads_words = model.options.char_cnn is None
        if reads_words and new is not None:
            raise DataError(
                f"{new}: {model} reads words of its own vocabulary and cannot be fine-tuned with "
                "another one; remove --new_vocab"
            )
        if model.n_words is None and new is None:
            raise DataError(
                f"{model}: no softmax ({model.softmax_path.name}) beside the weights; pass the "
                "vocabulary of a new softmax with --new_vocab, for example the vocabulary that the "
                "model was trained with"
            )

        if model.n_words is not None:
            has_words = model.softmax is not None and model.softmax.words is not None
            if of_model is not None or has_words or model.vocabulary_path.exists():
                self.vocab = model.vocabulary(of_model)
        elif of_model is not None:
            self.vocab = Vocabulary(of_model)
        if new is not None:
            self.has_new_words = True
            return Vocabulary(new, validate_file=True)
        if self.vocab is None:
            or_new = "" if reads_words else ", or a new one (--new_vocab)"
            raise DataError(
                f"{model.folder / VOCABULARY}: file not found; pass the vocabulary of the source "
                f"(--vocab){or_new}"
            )
        return self.vocab

    def check_same(self, folder: RunFolder, stored: Finetuning | None) -> None:
        """Raise BilmError for a folder with a run that did not start from here."""
        if not stored:
            raise BilmError(
                f"{folder}: contains a run that is not a fine-tuning; use another folder"
            )
        if stored.source != self.id:
            raise BilmError(
                f"{folder}: this folder's run started from {' '.join(stored.source)}, but "
                f"{' '.join(self.id)} was requested"
            )

    def assign(self, model: BiLM, vocab: Vocabulary) -> None:
        """Assign the weights to a model, and the softmax rows of the words of its vocabulary that
        the vocabulary of the source also contains."""
        path = self.model.tensors.source
        softmax = self.model.softmax
        words = [] if self.vocab is None else self.vocab.words
        is_same = softmax is not None and words == vocab.words
        self.model.assign(model, softmax=is_same)
        if is_same:
            logging.info("%s: weights and the softmax of %d words loaded", path, vocab.size)
            return
        if softmax is None or not words:
            missing = "the source has none"
            if softmax is not None:
                missing = "the source's vocabulary is missing"
            logging.info("%s: weights loaded; the softmax is newly initialized: %s", path, missing)
            return

        # The row of each word in the source's softmax, -1 for a new word.
        places = {word: i for i, word in enumerate(words)}
        rows = np.array([places.get(word, -1) for word in vocab.words])  # V
        is_shared = rows >= 0
        assert model.softmax is not None
        for name, variable in (("W", model.softmax.kernel), ("b", model.softmax.bias)):
            old = np.asarray(softmax.tensors[SOFTMAX + name])
            if not np.isfinite(old).all():
                raise WeightsError(f"{path}: softmax/{name} contains non-finite values")
            value = variable.numpy()
            value[is_shared] = old[rows[is_shared]]
            variable.assign(value)
        logging.info(
            "%s: weights loaded; the softmax is newly initialized, except the rows of the %d of "
            "its %d words that the source's vocabulary also contains",
            path, is_shared.sum(), vocab.size,
        )  # fmt: skip

    def run_options(self, changes: Mapping[str, Any]) -> RunOptions:
        """Return the options of a run that starts from here: `changes` by key, and otherwise
        the options of the source or defaults. Raises: OptionsError.

        The learning rate is the source's if the optimizer is unchanged. The warm-up is a tenth of
        the source's, at least 15 steps, but never longer than the source's.
        """
        model = self.model.options
        names = (*CHANGEABLE, *FALLBACKS, "optimizer")
        kept = FALLBACKS | {name: model.other[name] for name in names if name in model.other}
        optimizer = kept.get("optimizer", "adagrad")
        if changes.get("optimizer", optimizer) != optimizer:
            kept["learning_rate"] = None
        warmup = kept.get("warmup_steps")
        if type(warmup) is int and warmup > 0:  # RunOptions checks the rest
            kept["warmup_steps"] = max(math.ceil(warmup / WARMUP_SHARE), min(warmup, SHORT_WARMUP))
        return RunOptions(
            bidirectional=model.bidirectional is not False,
            lstm=model.lstm.replace(other={}),
            # An export's n_characters includes the padding row, which is not trained.
            char_cnn=model.char_cnn and model.char_cnn.replace(n_characters=N_CHARACTERS, other={}),
            share_embedding_softmax=model.share_embedding_softmax,
            **kept | NOT_INHERITED | dict(changes),
        )
