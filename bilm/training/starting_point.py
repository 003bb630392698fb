"""What a fine-tuning starts from: a stored model, its options and its vocabulary."""

from __future__ import annotations

import math
import shutil
import tempfile
import weakref
from dataclasses import fields
from pathlib import Path
from typing import Any

from bilm.data.vocabulary import Vocabulary
from bilm.errors import DataError, OptionsError
from bilm.options.model_options import N_CHARACTERS
from bilm.options.run_options import RunOptions
from bilm.storage.finding.web import masked
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.files import expanded
from bilm.support.model_files import OPTIONS, VOCABULARY

# What a run takes over from the options of its source, and the value where they do not say.
KEPT = {
    "dropout": 0.1,
    "all_clip_norm_val": 10.0,
    "batch_size": 128,
    "unroll_steps": 20,
    "n_negative_samples_batch": 8192,
    "sample_softmax": True,
    "optimizer": "adagrad",
    "learning_rate": None,
    "warmup_steps": 0,
    "decay": "none",
    "decay_start": 0.0,
    "decay_floor": 0.0,
    "softmax_bias": "zeros",
    "share_negatives": False,
}
# Options that depend on the new corpus, not on the source.
OWN = {"n_epochs": 1, "state_reset_probability": 0.05}
# The slots are new, as in the source's first step, but the weights are not, so a tenth of the
# source's warm-up is enough. The warm-up has at least 15 steps, so that a run that starts from a
# tuned model does not shorten it again.
WARMUP_SHARE, SHORT_WARMUP = 10, 15


class Source:
    """The stored model that fine-tuning starts from.

    Args:
        source, weight_file: a run, or an exported model: see
            `bilm.storage.stored_model.open_model`.
    Attributes:
        model: the `StoredModel`.
        n_tokens: see `StoredModel.n_words`.
        id: the names of the model, as absolute paths if they exist.
    Raises: OptionsError, WeightsError.
    """

    def __init__(self, source: str | Path | StoredModel, weight_file: str | Path | None = None):
        self.model = open_model(source, weight_file)
        self.model.require_trainable("be fine-tuned")
        self.softmax, self.options = self.model.softmax, self.model.options
        if self.softmax is not None and self.softmax.words is not None:
            self.model.vocabulary()  # raises DataError if its words cannot be used
        self.n_tokens, self.folder = self.model.n_words, self.model.folder
        self.model.check_size()
        self.id = [_absolute(name) for name in self.model.given]

    def run_options(self, changes: dict[str, Any]) -> RunOptions:
        """Return the options of a run that starts from here, the shape of the model included.

        The learning rate is the source's if the optimizer is unchanged. The warm-up is a tenth of
        the source's, at least 15 steps, but never longer than the source's.

        Args:
            changes: option values by key; other options are the source's or defaults.
        Raises: OptionsError.
        """
        if unknown := set(changes) - {field.name for field in fields(RunOptions)}:
            raise OptionsError(
                f"{', '.join(sorted(unknown))}: not an option that fine-tuning can change"
            )
        lstm, char_cnn, other = self.options.lstm, self.options.char_cnn, self.options.other
        kept = {name: other.get(name, default) for name, default in KEPT.items()}
        if changes.get("optimizer", kept["optimizer"]) != kept["optimizer"]:
            kept["learning_rate"] = None
        if type(warmup := kept["warmup_steps"]) is int and warmup > 0:  # RunOptions checks the rest
            kept["warmup_steps"] = max(math.ceil(warmup / WARMUP_SHARE), min(warmup, SHORT_WARMUP))
        try:
            return RunOptions(
                bidirectional=self.options.bidirectional is not False,
                lstm=lstm.replace(other={}),
                # An exported file counts the row of padding, which is not trained.
                char_cnn=char_cnn and char_cnn.replace(n_characters=N_CHARACTERS, other={}),
                share_embedding_softmax=self.options.share_embedding_softmax,
                **kept | OWN | changes,
            )
        except OptionsError as error:
            raise OptionsError(
                f"{self.folder / OPTIONS}, or the requested changes: {error}"
            ) from None

    def vocabulary_file(self) -> Path | None:
        """Return a file of the source's words, which exists as long as this object; None if
        unknown."""
        if self.softmax is None or self.softmax.words is None:
            beside = self.folder / VOCABULARY
            return beside if self.n_tokens is not None and beside.exists() else None
        scratch = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
        path = Path(scratch) / VOCABULARY
        path.write_text("".join(f"{word}\n" for word in self.softmax.words), encoding="utf-8")
        return path


def choose_vocabulary(
    start: Source, own: str | Path | None, new: str | Path | None
) -> tuple[Path | None, Path]:
    """Choose among the vocabularies.

    Args:
        own: vocabulary of the source; None for `vocab.txt` in its folder.
        new: vocabulary of a new softmax, or None.
    Returns: the vocabulary of the source (None if it is unknown) and that of the new run.
    Raises: DataError if one is missing or does not belong to the source.
    """
    own, new = expanded(own), expanded(new)
    beside, reads_words = start.folder / VOCABULARY, start.options.char_cnn is None
    if reads_words and new is not None:
        raise DataError(
            f"{new}: {start.model} reads words of its own vocabulary and cannot be "
            "fine-tuned with another one; remove --new_vocab"
        )
    if start.n_tokens is None and new is None:
        raise DataError(
            f"{start.model}: no softmax ({start.model.format.softmax_path.name}) beside the "
            "weights; pass the vocabulary of a new softmax with --new_vocab, for example the "
            "vocabulary that the model was trained with"
        )
    if own is None:
        own = start.vocabulary_file()
    if own is None and new is None:
        raise DataError(
            f"{beside}: file not found; pass the vocabulary of the source (--vocab)"
            + ("" if reads_words else ", or a new one (--new_vocab)")
        )
    if own is not None and start.n_tokens is not None:
        _check_own(start, Path(own), beside)
    chosen = new or own
    assert chosen is not None  # an error was raised above
    return (Path(own) if own else None), Path(chosen)


def _check_own(start: Source, own: Path, beside: Path) -> None:
    hint = ""
    if start.options.char_cnn is not None:
        hint = "; pass a new vocabulary with --new_vocab"
    words = words_of(own)
    if len(words) != start.n_tokens:
        raise DataError(
            f"{own}: {len(words):,} words, but {start.model} was trained with "
            f"{start.n_tokens:,}{hint}"
        )
    stored, path = None, beside
    if start.softmax is not None and start.softmax.words is not None:
        stored, path = start.softmax.words, start.softmax.tensors.paths[0]
    elif start.softmax is not None and beside.exists() and own != beside:
        stored = words_of(beside)
    if stored is not None and words != stored:
        raise DataError(f"{own}: other words than the source's own {path}{hint}")


def words_of(vocab_file: Path) -> list[str]:
    """Return the words of a vocabulary, in order."""
    vocab = Vocabulary(vocab_file)
    return [vocab.id_to_word(i) for i in range(vocab.size)]


def _absolute(name: str) -> str:
    path = Path(expanded(name))
    return str(path.resolve()) if path.exists() else masked(name)
