"""What a fine-tuning starts from: a stored model, its options and its vocabulary."""

from __future__ import annotations

import math
import shutil
import tempfile
import weakref
from dataclasses import fields
from pathlib import Path
from typing import Any

from bilm.data.vocabulary import Vocabulary, vocabulary_of_words
from bilm.errors import DataError, OptionsError
from bilm.files import expanded
from bilm.language_model import BiLM
from bilm.options import N_CHARACTERS, RunOptions
from bilm.storage import names as weights
from bilm.storage.checkpoint import OPTIONS, VOCABULARY
from bilm.storage.export_id import check_same_export
from bilm.storage.formats.checkpoint import open_run
from bilm.storage.formats.known import is_run, read_options, require_softmax
from bilm.storage.locate import resolve
from bilm.storage.softmax_file import SoftmaxFile, softmax_beside
from bilm.storage.tensors import HDF5Tensors

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
# What belongs to the new corpus, whatever the source was trained with.
OWN = {"n_epochs": 1, "state_reset_probability": 0.05}
# The slots are new, as in the source's first step, but the weights are not. What was tuned is tuned
# again with no shorter warm-up than this.
WARMUP_SHARE, SHORT_WARMUP = 10, 15


class Source:
    """What fine-tuning starts from; its weights are not read before they are requested.

    Args:
        source: what stands for a model, see `bilm.storage.locate.resolve`: a run, ours or the
            TensorFlow 1 reference's, or an exported model.
        weight_file: the HDF5 file.
    Attributes: `options` of the model; `run`, the checkpoint, None for HDF5; `softmax`, a
        `SoftmaxFile` beside HDF5, or None; `n_tokens`, the words of the softmax or of the table
        that a model for words reads from, None for a model that reads characters without a
        softmax; `folder` in which the options are.
    Raises: OptionsError, WeightsError.
    """

    def __init__(self, source: str | Path, weight_file: str | Path | None = None):
        source, weight_file = expanded(source), expanded(weight_file)
        self.source, self.run, self.softmax, self.n_tokens = source, None, None, None
        options_file, self.weight_file = resolve(source, weight_file)
        self.folder = options_file.parent
        if is_run(self.weight_file):
            self.run = open_run(self.weight_file)
            self.options, self.n_tokens = self.run.options, self.run.n_tokens
        else:
            require_softmax(self.weight_file, "be tuned")
            self.options = read_options(options_file, self.weight_file)
            files = [self.weight_file]
            if softmax_beside(self.weight_file).is_file():
                files.append(softmax_beside(self.weight_file))
                check_same_export(self.options, options_file, *files)
                self.softmax = SoftmaxFile(files[1])
                words = vocabulary_of_words(self.softmax.words, files[1], self.options)
                self.n_tokens = words.size
            elif self.options.char_cnn is None:
                self.n_tokens = weights.n_words(HDF5Tensors(self.weight_file))
            weights.check_room(self.options, *files, n_rows=self.n_tokens)
        self.id = [_absolute(path) for path in (source, weight_file) if path is not None]

    def run_options(self, changes: dict[str, Any]) -> RunOptions:
        """Return the options of a run that starts from here, the shape of the model included.

        The learning rate is the source's if the optimizer is; the warm-up is a tenth of the
        source's, or 15 steps where that is longer and the source's is too.

        Args:
            changes: values by key, in place of the source's or of the defaults.
        Raises: OptionsError.
        """
        if unknown := set(changes) - {field.name for field in fields(RunOptions)}:
            raise OptionsError(f"{', '.join(sorted(unknown))}: no option of a run to change")
        lstm, char_cnn, other = self.options.lstm, self.options.char_cnn, self.options.other
        kept = {name: other.get(name, default) for name, default in KEPT.items()}
        if changes.get("optimizer", kept["optimizer"]) != kept["optimizer"]:
            kept["learning_rate"] = None
        if type(warmup := kept["warmup_steps"]) is int and warmup > 0:  # RunOptions checks the rest
            kept["warmup_steps"] = max(math.ceil(warmup / WARMUP_SHARE), min(warmup, SHORT_WARMUP))
        try:
            return RunOptions(
                bidirectional=self.options.bidirectional,
                lstm=lstm.replace(other={}),
                # An exported file counts the row of padding, which is not trained.
                char_cnn=char_cnn and char_cnn.replace(n_characters=N_CHARACTERS, other={}),
                share_embedding_softmax=self.options.share_embedding_softmax,
                **kept | OWN | changes,
            )
        except OptionsError as error:
            raise OptionsError(f"{self.folder / OPTIONS}, or what is requested: {error}") from None

    def assign(self, model: BiLM, softmax: bool) -> None:
        """Set the variables of a model, those of the softmax only if asked.

        Raises: WeightsError.
        """
        if self.run is not None:
            self.run.assign(model, only=lambda name: softmax or weights.is_bilm(name))
            return
        weights.load_hdf5(model, self.weight_file, only=weights.is_bilm)
        if softmax and self.softmax is not None:
            self.softmax.assign(model)

    def vocabulary_file(self) -> Path | None:
        """Return a file of the source's words, there as long as this object; None if not known."""
        if self.softmax is None:
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
        own: that of the source; None for the `vocab.txt` beside it.
        new: another one to predict.
    Returns: the vocabulary of the source, None where it is not known, and that of the new run.
    Raises: DataError, where one is missing or is not the source's.
    """
    own, new = expanded(own), expanded(new)
    beside, reads_words = start.folder / VOCABULARY, start.options.char_cnn is None
    if reads_words and new is not None:
        raise DataError(
            f"{new}: {start.source} reads words, by a table for its own vocabulary; it cannot be "
            "tuned with another one (leave out --new_vocab)"
        )
    if start.n_tokens is None and new is None:
        raise DataError(
            f"{start.source}: no softmax ({softmax_beside(start.weight_file).name}) beside the "
            "weights; say which words a new one shall predict (--new_vocab; it may be the "
            "vocabulary that the model was trained with)"
        )
    if own is None:
        own = start.vocabulary_file()
    if own is None and new is None:
        raise DataError(
            f"{beside}: no such file; give the vocabulary of the source (--vocab)"
            + ("" if reads_words else ", or a new one (--new_vocab)")
        )
    if own is not None and start.n_tokens is not None:
        _check_own(start, Path(own), beside)
    return own and Path(own), Path(new or own)


def _check_own(start: Source, own: Path, beside: Path) -> None:
    hint = ""
    if start.options.char_cnn is not None:
        hint = "; a new vocabulary has to be given as such (--new_vocab)"
    words = words_of(own)
    if len(words) != start.n_tokens:
        raise DataError(
            f"{own}: {len(words):,} words, but {start.source} was trained with "
            f"{start.n_tokens:,}{hint}"
        )
    known = start.softmax and (start.softmax.words, start.softmax.path)
    if start.run and beside.exists() and own != beside:
        known = words_of(beside), beside
    if known and words != known[0]:
        raise DataError(f"{own}: other words than the source's own {known[1]}{hint}")


def words_of(vocab_file: Path) -> list[str]:
    """Return the words of a vocabulary, in order."""
    vocab = Vocabulary(vocab_file)
    return [vocab.id_to_word(i) for i in range(vocab.size)]


def _absolute(path: str | Path) -> str:
    return str(Path(path).resolve()) if Path(path).exists() else str(path)
