"""Fine-tuning: a run whose first weights are those of a stored model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bilm import schema, weights
from bilm.checkpoint import OPTIONS, VOCABULARY, StoredRun
from bilm.errors import BilmError, DataError, OptionsError, WeightsError
from bilm.evaluation import Evaluator, Perplexity, heldout_dataset
from bilm.language_model import BiLM
from bilm.options import N_CHARACTERS, RunOptions
from bilm.pretrained import stored_options
from bilm.source import resolve
from bilm.training import train
from bilm.vocabulary import UnicodeCharsVocabulary, Vocabulary

RECORD = "finetuning.json"
# What a run takes over from the options of its source, and the value where they do not say.
KEPT = {
    "dropout": 0.1,
    "all_clip_norm_val": 10.0,
    "batch_size": 128,
    "unroll_steps": 20,
    "n_negative_samples_batch": 8192,
    "sample_softmax": True,
}
# What belongs to the new corpus, whatever the source was trained with.
OWN = {"n_epochs": 1, "learning_rate": 0.2, "state_reset_probability": 0.05}


class TuneResult(NamedTuple):
    """How fine-tuning ended: see `TrainResult`, and held-out perplexity before its first step."""

    step: int
    finished: bool
    before: Perplexity | None
    after: Perplexity | None


class Source:
    """What fine-tuning starts from; its weights are not read before they are asked for.

    Args:
        source: the folder of a run, ours or the TensorFlow 1 reference's, or what
            `bilm.source.resolve` takes: a folder with an exported model, a ZIP archive, a URL, a
            name, or with `weight_file` the options.
        weight_file: the HDF5 file.
    Attributes: `options` of the model; `run`, the checkpoint, None for HDF5; `n_tokens`, the words
        of the softmax or of the table that a model for words reads from, None for an HDF5 file of
        a model that reads characters; `folder` in which the options are.
    Raises: OptionsError, WeightsError.
    """

    def __init__(self, source: str | Path, weight_file: str | Path | None = None):
        self.source, self.run, self.n_tokens = str(source), None, None
        if weight_file is None and (Path(source) / "checkpoint").exists():
            self.run, self.folder = StoredRun(source), Path(source)
            self.options, self.n_tokens = self.run.options, self.run.n_tokens
        else:
            options_file, self.weight_file = _resolve(source, weight_file)
            self.folder = options_file.parent
            self.options = stored_options(options_file, self.weight_file)
            if self.options.char_cnn is None:
                self.n_tokens = weights.n_words(self.weight_file)
        self.id = [_absolute(path) for path in (source, weight_file) if path is not None]

    def run_options(self, changes: dict[str, Any]) -> RunOptions:
        """Give the options of a run that goes on from here, the shape of the model included.

        Args:
            changes: values by key, in place of the source's or of the defaults.
        Raises: OptionsError.
        """
        lstm, char_cnn, other = self.options.lstm, self.options.char_cnn, self.options.other
        kept = {name: other.get(name, default) for name, default in KEPT.items()}
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
            raise OptionsError(f"{self.folder / OPTIONS}, or what is asked for: {error}") from None

    def assign(self, model: BiLM, softmax: bool) -> None:
        """Set the variables of a model, those of the softmax only if asked.

        Raises: WeightsError.
        """
        if self.run is None:
            weights.load_hdf5(model, self.weight_file, only=weights.is_bilm)
        else:
            self.run.assign(model, only=lambda name: softmax or weights.is_bilm(name))


def finetune(
    source: str | Path,
    train_prefix: str,
    save_dir: str | Path,
    weight_file: str | Path | None = None,
    vocab_file: str | Path | None = None,
    new_vocab_file: str | Path | None = None,
    heldout_prefix: str | None = None,
    changes: dict[str, Any] | None = None,
    **training: Any,
) -> TuneResult:
    """Train a stored model on; what comes out is a run like others, and is continued like others.

    Adagrad's accumulators, the LSTM states and the count of steps start anew.

    Args:
        source, weight_file: what to start from, see `Source`.
        train_prefix, heldout_prefix: see `train`; held-out text is also measured before the first
            step.
        save_dir: folder of the new run.
        vocab_file: the vocabulary of the source; None for the `vocab.txt` beside it.
        new_vocab_file: another vocabulary to predict, with a new softmax. Words that are in the
            source's vocabulary too take over their rows if the source has a softmax. Needed for an
            HDF5 file of a model for characters, which has none; not for a model that reads words.
        changes: of the options, by key; the rest is the source's (`KEPT`) or a default (`OWN`).
        training: the other arguments of `train`.
    Raises: BilmError for what cannot be used.
    """
    start = Source(source, weight_file)
    save_dir = Path(save_dir)
    if start.folder.resolve() == save_dir.resolve():
        raise BilmError(f"{save_dir}: source and save_dir are one folder; give another save_dir")
    record = _read_record(save_dir, start)
    options = start.run_options(changes or {})
    own, vocab_file = _choose_vocabulary(start, vocab_file, new_vocab_file)
    vocab = _load(vocab_file, options)

    def initialize(model: BiLM) -> None:
        _set_weights(model, start, own, vocab)
        before = None
        if heldout_prefix:
            logging.info("measuring the held-out text before the first step")
            dataset = heldout_dataset(heldout_prefix, vocab, options.bidirectional)
            before = Evaluator(model)(dataset, options.batch_size)
            logging.info("before: held-out perplexity from zero state: %s", before)
        record.update(source=start.id, before=before and before._asdict(), after=None)
        schema.write(save_dir / RECORD, record)

    result = train(
        options, str(vocab_file), train_prefix, str(save_dir), heldout_prefix,
        initialize=initialize, **training,
    )  # fmt: skip
    if result.finished and result.heldout is not None:
        record["after"] = result.heldout._asdict()
        schema.write(save_dir / RECORD, record)
    before, after = (record[k] and Perplexity(**record[k]) for k in ("before", "after"))
    return TuneResult(result.step, result.finished, before, after)


def _resolve(source: str | Path, weight_file: str | Path | None) -> tuple[Path, Path]:
    try:
        return resolve(source, weight_file)
    except WeightsError as error:
        if weight_file is not None or not Path(source).is_dir():
            raise
        raise WeightsError(f"{error}; nor is there the checkpoint of a run") from None


def _absolute(path: str | Path) -> str:
    return str(Path(path).resolve()) if Path(path).exists() else str(path)


def _read_record(save_dir: Path, start: Source) -> dict[str, Any]:
    """Give what the folder says of its fine-tuning; one with another run is not written to."""
    path = save_dir / RECORD
    if not (save_dir / "checkpoint").exists():
        return {}
    if not path.exists():
        raise BilmError(f"{save_dir}: holds a run that is no fine-tuning; give another save_dir")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if list(record) != ["source", "before", "after"]:
            raise ValueError(f"the keys {list(record)}")
    except ValueError as error:
        raise BilmError(f"{path}: not the record of a fine-tuning ({error})") from None
    if record["source"] != start.id:
        raise BilmError(
            f"{save_dir}: this folder's run started from {' '.join(record['source'])}, but "
            f"{' '.join(start.id)} was asked for"
        )
    return record


def _choose_vocabulary(start: Source, own, new) -> tuple[Path | None, Path]:
    """Give the vocabulary of the source, None where it is not known, and that of the new run."""
    beside, reads_words = start.folder / VOCABULARY, start.options.char_cnn is None
    if reads_words and new is not None:
        raise DataError(
            f"{new}: {start.source} reads words, by a table for its own vocabulary; it cannot be "
            "tuned with another one (leave out --new_vocab_file)"
        )
    if start.n_tokens is None and new is None:
        raise DataError(
            f"{start.source}: HDF5 files hold no softmax; say which words a new one shall predict "
            "(--new_vocab_file; it may be the vocabulary that the model was trained with)"
        )
    if own is None and start.n_tokens is not None and beside.exists():
        own = beside
    if own is None and new is None:
        raise DataError(
            f"{beside}: no such file; give the vocabulary of the source (--vocab_file)"
            + ("" if reads_words else ", or a new one (--new_vocab_file)")
        )
    if own is not None and start.n_tokens is not None:
        _check_own(start, Path(own), beside)
    return own and Path(own), Path(new or own)


def _check_own(start: Source, own: Path, beside: Path) -> None:
    hint = ""
    if start.options.char_cnn is not None:
        hint = "; a new vocabulary has to be given as such (--new_vocab_file)"
    words = _words(own)
    if len(words) != start.n_tokens:
        raise DataError(
            f"{own}: {len(words):,} words, but {start.source} was trained with "
            f"{start.n_tokens:,}{hint}"
        )
    if start.run and beside.exists() and own != beside and words != _words(beside):
        raise DataError(f"{own}: other words than the source's own {beside}{hint}")


def _words(vocab_file: Path) -> list[str]:
    vocab = Vocabulary(vocab_file)
    return [vocab.id_to_word(i) for i in range(vocab.size)]


def _load(vocab_file: Path, options: RunOptions) -> Vocabulary:
    if options.char_cnn is None:
        return Vocabulary(vocab_file, validate_file=True)
    limit = options.char_cnn.max_characters_per_token
    return UnicodeCharsVocabulary(vocab_file, limit, validate_file=True)


def _set_weights(model: BiLM, start: Source, own: Path | None, vocab: Vocabulary) -> None:
    """Give a model the source's weights, and its softmax as far as the words are the same."""
    path = start.weight_file if start.run is None else start.run.path
    if start.run is None or own is None:
        start.assign(model, softmax=False)
        why = "HDF5 files hold none" if start.run is None else "the source's words are not known"
        logging.info("%s: weights taken over; the softmax is new: %s", path, why)
        return
    places = {word: i for i, word in enumerate(_words(own))}
    words = (vocab.id_to_word(i) for i in range(vocab.size))
    rows = np.array([places.get(word, -1) for word in words])
    if len(rows) == len(places) and (rows == np.arange(len(rows))).all():
        start.assign(model, softmax=True)
        logging.info("%s: weights taken over, the softmax of %d words too", path, vocab.size)
        return
    start.assign(model, softmax=False)
    shared = rows >= 0
    for name, variable in (("W", model.softmax.kernel), ("b", model.softmax.bias)):
        stored, value = start.run.value(weights.SOFTMAX + name), variable.numpy()
        if not np.isfinite(stored).all():
            raise WeightsError(f"{path}: softmax/{name} holds values that are not finite")
        value[shared] = stored[rows[shared]]
        variable.assign(value)
    logging.info(
        "%s: weights taken over; the softmax is new, but for the rows of the %d of its %d words "
        "that the source's vocabulary holds too",
        path, shared.sum(), vocab.size,
    )  # fmt: skip
