"""Fine-tuning: a run that starts from the weights of a stored model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bilm.data.shards import resolve_shards
from bilm.data.stream import describe_part
from bilm.data.vocabulary import Vocabulary
from bilm.errors import BilmError, WeightsError
from bilm.language_model import BiLM
from bilm.options import schema
from bilm.scoring.perplexity import Evaluator, Perplexity, heldout_dataset
from bilm.storage import names as weights
from bilm.storage.stored_model import StoredModel
from bilm.training.hosts import agreement
from bilm.training.hosts.exchange import Alone
from bilm.training.inputs import load_vocabulary
from bilm.training.run import TrainingRun
from bilm.training.run_folder import RunFolder
from bilm.training.starting_point import Source, choose_vocabulary, words_of

RECORD = "source", "before", "after", "text"  # keys of finetuning.json


class TuneResult(NamedTuple):
    """The result of fine-tuning: see `TrainResult`; `before` is the held-out perplexity before
    the first step."""

    step: int
    finished: bool
    before: Perplexity | None
    after: Perplexity | None


def finetune(
    source: str | Path | StoredModel,
    train_prefix: str,
    save_dir: str | Path,
    weight_file: str | Path | None = None,
    vocab_file: str | Path | None = None,
    new_vocab_file: str | Path | None = None,
    heldout_prefix: str | None = None,
    changes: dict[str, Any] | None = None,
    **training: Any,
) -> TuneResult:
    """Continue to train a stored model on another text, as a new run in `save_dir`.

    The optimizer's slots, the LSTM states and the step count are reset.

    Args:
        source, weight_file: the model to start from, see `Source`.
        train_prefix, heldout_prefix: see `TrainingRun`; held-out text is also measured before the
            first step.
        save_dir: folder of the new run.
        vocab_file: the vocabulary of the source; None for the `vocab.txt` beside it.
        new_vocab_file: another vocabulary to predict, with a new softmax. Words that the source's
            vocabulary also contains keep their softmax rows if the source has a softmax. Required
            if the source reads characters and has no softmax; not allowed if it reads words.
        changes: option values by key; other options are the source's or defaults, see
            `bilm.training.starting_point`.
        training: the other arguments of `TrainingRun`.
    Raises: BilmError if an input cannot be used.
    """
    start = Source(source, weight_file)
    hosts = training.get("hosts") or Alone()
    folder = RunFolder(save_dir, writes=hosts.is_chief)
    if start.folder.resolve() == folder.path.resolve():
        raise BilmError(f"{folder}: source and save_dir are one folder; use another save_dir")
    heldout = text = None
    if heldout_prefix:
        heldout = resolve_shards(heldout_prefix, training.get("on_bad_utf8", "error"))
        text = describe_part(heldout)
    record = _read_record(folder, start, text)
    options = start.run_options(changes or {})
    given_vocabulary = vocab_file or new_vocab_file
    own, vocab_file = choose_vocabulary(start, vocab_file, new_vocab_file)
    agreement.check_alike(hosts, "source", _identity(start, own))
    vocab = load_vocabulary(vocab_file, options)

    def initialize(model: BiLM) -> None:
        _set_weights(model, start, own, vocab)
        logging.info(
            "LSTM states are reset with probability %g; the source was trained with %g",
            options.state_reset_probability, start.options.other.get("state_reset_probability", 0),
        )  # fmt: skip
        measured = None
        if heldout:
            logging.info("measuring the held-out text before the first step")
            dataset = heldout_dataset(heldout, vocab, options.bidirectional)
            found = Evaluator(model)(dataset, options.batch_size)
            logging.info("before: held-out perplexity from zero state: %s", found)
            measured = found._asdict()
        record.update(source=start.id, before=measured, after=None, text=text)
        folder.write_tuning(record)

    run = TrainingRun(
        options, vocab_file, train_prefix, folder.path, heldout_prefix,
        initialize=initialize, **training,
    )  # fmt: skip
    if given_vocabulary is None:  # the file may be temporary, so messages name the model
        run.vocab.filename = f"the vocabulary of {start.model}"
    result = run.train()
    if result.finished and result.heldout is not None:
        record.update(after=result.heldout._asdict(), text=text)
        folder.write_tuning(record)
    return TuneResult(result.step, result.finished, *_measured(record))


def _identity(start: Source, own: Path | None) -> dict[str, Any]:
    """Return the values that workers compare. The paths of their sources may differ.

    The weights themselves are compared before the first step.
    """
    digest = None if own is None else agreement.digest_of_file(own)
    options = agreement.flat(start.options.to_dict(), "the source's ")
    return {"SHA-256 of the source's vocabulary": digest, **options}


def _measured(record: dict[str, Any]) -> list[Perplexity | None]:
    return [
        None if record[k] is None else Perplexity.from_record(record[k])
        for k in ("before", "after")
    ]


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _read_record(folder: RunFolder, start: Source, text: list[str] | None) -> dict[str, Any]:
    """Return the record of the folder's fine-tuning; refuse a folder of another run.

    Perplexities of another held-out text are removed.
    """
    path = folder.tuning_file
    if not folder.holds_run:
        return {}
    if not path.exists():
        raise BilmError(f"{folder}: contains a run that is not a fine-tuning; use another save_dir")
    try:
        record = schema.read_object(path)
        record.setdefault("text", None)  # missing in older records
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
            "%s: the perplexity before the first step was measured on another held-out text "
            "(%s, now %s) and is discarded", path, record["text"], text,
        )  # fmt: skip
        record.update(before=None, after=None, text=text)
    return record


def _set_weights(model: BiLM, start: Source, own: Path | None, vocab: Vocabulary) -> None:
    """Assign the source's weights to a model, and the softmax rows of the words that both
    vocabularies contain."""
    path, stored_softmax = start.model.tensors.source, start.softmax
    if stored_softmax is None or own is None:
        start.model.assign(model, softmax=False)
        why = (
            "the source has none" if start.softmax is None else "the source's vocabulary is missing"
        )
        logging.info("%s: weights loaded; the softmax is newly initialized: %s", path, why)
        return
    places = {word: i for i, word in enumerate(words_of(own))}
    words = (vocab.id_to_word(i) for i in range(vocab.size))
    rows = np.array([places.get(word, -1) for word in words])
    if len(rows) == len(places) and (rows == np.arange(len(rows))).all():
        start.model.assign(model)
        logging.info("%s: weights and the softmax of %d words loaded", path, vocab.size)
        return
    start.model.assign(model, softmax=False)
    shared = rows >= 0
    for name, variable in (("W", model.softmax.kernel), ("b", model.softmax.bias)):
        stored, value = stored_softmax.value(weights.SOFTMAX + name), variable.numpy()
        if not np.isfinite(stored).all():
            raise WeightsError(f"{path}: softmax/{name} contains non-finite values")
        value[shared] = stored[rows[shared]]
        variable.assign(value)
    logging.info(
        "%s: weights loaded; the softmax is newly initialized, except the rows of the %d of its "
        "%d words that the source's vocabulary also contains",
        path, shared.sum(), vocab.size,
    )  # fmt: skip
