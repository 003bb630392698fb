"""Fine-tuning: a run whose first weights are those of a stored model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bilm import schema
from bilm.data.shards import resolve_shards
from bilm.data.stream import describe_part
from bilm.data.vocabulary import Vocabulary
from bilm.errors import BilmError, WeightsError
from bilm.evaluation import Evaluator, Perplexity, heldout_dataset
from bilm.language_model import BiLM
from bilm.storage import names as weights
from bilm.training.hosts import Alone
from bilm.training.preparation import load_vocabulary
from bilm.training.run import TrainingRun
from bilm.training.run_folder import RunFolder
from bilm.training.starting_point import Source, choose_vocabulary, words_of

RECORD = "source", "before", "after", "text"  # keys of finetuning.json


class TuneResult(NamedTuple):
    """How fine-tuning ended: see `TrainResult`, and held-out perplexity before its first step."""

    step: int
    finished: bool
    before: Perplexity | None
    after: Perplexity | None


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

    The optimizer's slots, the LSTM states and the count of steps start anew.

    Args:
        source, weight_file: what to start from, see `Source`.
        train_prefix, heldout_prefix: see `TrainingRun`; held-out text is also measured before the
            first step.
        save_dir: folder of the new run.
        vocab_file: the vocabulary of the source; None for the `vocab.txt` beside it.
        new_vocab_file: another vocabulary to predict, with a new softmax. Words that are in the
            source's vocabulary too take over their rows if the source has a softmax. Needed for an
            HDF5 file of a model for characters, which has none; not for a model that reads words.
        changes: of the options, by key; the rest is the source's or a default, see
            `bilm.training.starting_point`.
        training: the other arguments of `TrainingRun`.
    Raises: BilmError for what cannot be used.
    """
    start = Source(source, weight_file)
    hosts = training.get("hosts") or Alone()
    folder = RunFolder(save_dir, writes=hosts.is_chief)
    if start.folder.resolve() == folder.path.resolve():
        raise BilmError(f"{folder}: source and save_dir are one folder; give another save_dir")
    heldout = text = None
    if heldout_prefix:
        heldout = resolve_shards(heldout_prefix, training.get("on_bad_utf8", "error"))
        text = describe_part(heldout)
    record = _read_record(folder, start, text)
    options = start.run_options(changes or {})
    own, vocab_file = choose_vocabulary(start, vocab_file, new_vocab_file)
    vocab = load_vocabulary(vocab_file, options)

    def initialize(model: BiLM) -> None:
        _set_weights(model, start, own, vocab)
        logging.info(
            "rows start afresh with probability %g; with %g where the source was trained",
            options.state_reset_probability, start.options.other.get("state_reset_probability", 0),
        )  # fmt: skip
        before = None
        if heldout:
            logging.info("measuring the held-out text before the first step")
            dataset = heldout_dataset(heldout, vocab, options.bidirectional)
            before = Evaluator(model)(dataset, options.batch_size)
            logging.info("before: held-out perplexity from zero state: %s", before)
        before = before and before._asdict()
        record.update(source=start.id, before=before, after=None, text=text)
        folder.write_tuning(record)

    result = TrainingRun(
        options, vocab_file, train_prefix, folder.path, heldout_prefix,
        initialize=initialize, **training,
    ).train()  # fmt: skip
    if result.finished and result.heldout is not None:
        record.update(after=result.heldout._asdict(), text=text)
        folder.write_tuning(record)
    return TuneResult(result.step, result.finished, *_measured(record))


def _measured(record: dict[str, Any]) -> list[Perplexity | None]:
    return [
        None if record[k] is None else Perplexity.from_record(record[k])
        for k in ("before", "after")
    ]


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _read_record(folder: RunFolder, start: Source, text: list[str] | None) -> dict[str, Any]:
    """Return what the folder says of its fine-tuning; one with another run is not written to.

    Perplexities of another held-out text than this are left out.
    """
    path = folder.tuning_file
    if not folder.holds_run:
        return {}
    if not path.exists():
        raise BilmError(f"{folder}: holds a run that is no fine-tuning; give another save_dir")
    try:
        record = schema.read_object(path)
        record.setdefault("text", None)  # older records do not say
        if set(record) != set(RECORD) or not _are_names(record["source"]):
            raise BilmError("expected the keys source, a list of paths, before, after and text")
        _measured(record)
    except BilmError as error:
        message = str(error).removeprefix(f"{path}: ")
        raise BilmError(f"{path}: not the record of a fine-tuning ({message})") from None
    if record["source"] != start.id:
        raise BilmError(
            f"{folder}: this folder's run started from {' '.join(record['source'])}, but "
            f"{' '.join(start.id)} was requested"
        )
    if text and record["text"] not in (None, text):
        logging.warning(
            "%s: the perplexity before the first step was that of other held-out text (%s, now %s) "
            "and is left out", path, record["text"], text,
        )  # fmt: skip
        record.update(before=None, after=None, text=text)
    return record


def _set_weights(model: BiLM, start: Source, own: Path | None, vocab: Vocabulary) -> None:
    """Give a model the source's weights, and its softmax as far as the words are the same."""
    path = start.weight_file if start.run is None else start.run.path
    stored_softmax = start.run or start.softmax
    if stored_softmax is None or own is None:
        start.assign(model, softmax=False)
        why = "HDF5 files hold none" if start.run is None else "the source's words are not known"
        logging.info("%s: weights taken over; the softmax is new: %s", path, why)
        return
    places = {word: i for i, word in enumerate(words_of(own))}
    words = (vocab.id_to_word(i) for i in range(vocab.size))
    rows = np.array([places.get(word, -1) for word in words])
    if len(rows) == len(places) and (rows == np.arange(len(rows))).all():
        start.assign(model, softmax=True)
        logging.info("%s: weights taken over, the softmax of %d words too", path, vocab.size)
        return
    start.assign(model, softmax=False)
    shared = rows >= 0
    for name, variable in (("W", model.softmax.kernel), ("b", model.softmax.bias)):
        stored, value = stored_softmax.value(weights.SOFTMAX + name), variable.numpy()
        if not np.isfinite(stored).all():
            raise WeightsError(f"{path}: softmax/{name} holds values that are not finite")
        value[shared] = stored[rows[shared]]
        variable.assign(value)
    logging.info(
        "%s: weights taken over; the softmax is new, but for the rows of the %d of its %d words "
        "that the source's vocabulary holds too",
        path, shared.sum(), vocab.size,
    )  # fmt: skip
