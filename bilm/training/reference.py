"""The training functions of bilm-tf with its signatures, for its scripts and copies of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from bilm import schema
from bilm.data.bidirectional import BidirectionalLMDataset
from bilm.data.dataset import LMDataset
from bilm.data.shards import count_tokens
from bilm.errors import BilmError, DataError, OptionsError
from bilm.evaluation import perplexity
from bilm.files import expanded
from bilm.options import RunOptions
from bilm.storage.checkpoint import OPTIONS, StoredRun, load_model, run_vocabulary
from bilm.training.devices import make_strategy
from bilm.training.run import TrainingRun, TrainResult

Dataset = LMDataset | BidirectionalLMDataset

FAR = 0.1  # of the text's count, by which `n_train_tokens` may differ without a warning


def load_options_latest_checkpoint(tf_save_dir: str | Path) -> tuple[dict[str, Any], str]:
    """Return the content of a run's `options.json` and the path of its latest whole checkpoint.

    Raises: OptionsError, WeightsError.
    """
    options = schema.read_object(Path(expanded(tf_save_dir)) / OPTIONS)
    return options, StoredRun(tf_save_dir).path


def train(
    options: Mapping[str, Any],
    data: Dataset,
    n_gpus: int,
    tf_save_dir: str | Path,
    tf_log_dir: str | Path,
    restart_ckpt_file: str | None = None,
) -> TrainResult:
    """Train a biLM as bilm-tf's function of this name does; `bilm.TrainingRun` can do more.

    A folder with an unfinished run is continued, with or without `restart_ckpt_file`.

    Args:
        options: the content of an `options.json`. Unknown keys are reported and ignored.
        data: made without `test`; its files, vocabulary and seed are those of the run.
        n_gpus: replicas. Without any GPU they are made of the CPU, with a warning.
        tf_save_dir: the run's folder.
        tf_log_dir: TensorBoard's files go to `logs` in it.
        restart_ckpt_file: a checkpoint in `tf_save_dir`, as `load_options_latest_checkpoint`
            returns it.
    Raises: BilmError for input that cannot be used, and as `bilm.TrainingRun` does.
    """
    _show_progress()
    run_options, first = _run_options(options), _reader(data)
    if first.reverse:
        raise DataError("data reads backwards alone; expected an LMDataset without reverse")
    if first.test:
        raise DataError("data was made with test=True; training reads without it")
    if run_options.n_tokens_vocab not in (None, data.vocab.size):
        raise OptionsError(
            f"n_tokens_vocab: found {run_options.n_tokens_vocab:,}, but the vocabulary "
            f"{data.vocab.filename} has {data.vocab.size:,} words"
        )
    _check_restart(restart_ckpt_file, tf_save_dir)
    _compare_counts(run_options.n_train_tokens, first)
    return TrainingRun(
        run_options,
        data.vocab.filename,
        data.filepattern,
        tf_save_dir,
        strategy=_strategy(n_gpus),
        seed=first.seed,
        resume="auto" if restart_ckpt_file is None else "must",
        on_bad_utf8=first.shards.on_bad_utf8,
        log_dir=Path(expanded(tf_log_dir)) / "logs",
    ).train()


def test(options: Mapping[str, Any], ckpt_file: str, data: Dataset, batch_size: int = 256) -> float:
    """Measure perplexity by the full softmax, the LSTM state carried from sentence to sentence.

    Prints `AVERAGE PERPLEXITY = <number>` on standard output.

    Args:
        options: ignored; the folder of the checkpoint has its own.
        ckpt_file: a checkpoint, as `load_options_latest_checkpoint` returns it.
        data: made with `test=True`.
        batch_size: rows that share the sentences.
    Returns: the perplexity, e to the mean loss of both directions.
    Raises: DataError, OptionsError, WeightsError.
    """
    if not _reader(data).test:
        raise DataError("data was made without test=True; a test reads each sentence once")
    model = load_model(StoredRun(os.path.dirname(ckpt_file), ckpt_file))
    if isinstance(data, BidirectionalLMDataset) != model.options.bidirectional:
        raise DataError(
            f"data is {type(data).__name__}, but the model reads {' and '.join(model.directions)}"
        )
    if (model.options.char_cnn is None) != (data.max_word_length is None):
        raise DataError(f"{data.vocab.filename}: load it with load_vocab and the model's options")
    vocab = run_vocabulary(os.path.dirname(ckpt_file), model, data.vocab.filename)
    data.vocab.require_words_of(vocab)
    found = perplexity(model, data, batch_size, drop_remainder=True)
    sys.stdout.write(f"AVERAGE PERPLEXITY = {found.mean}\n")
    return found.mean


def _run_options(values: Mapping[str, Any]) -> RunOptions:
    # As JSON has them: NumPy numbers and tuples of a script would not be written back the same.
    plain = json.loads(json.dumps(dict(values), default=_as_number))
    options = schema.read(RunOptions, plain, strict=False)
    unknown = list(options.other_names())
    if unknown:
        logging.warning("options: unknown keys are ignored: %s", ", ".join(unknown))
    return options


def _as_number(value: Any) -> Any:
    try:
        return value.item()
    except AttributeError:
        raise OptionsError(f"options: found {value!r}, expected values that JSON has") from None


def _reader(data: Dataset) -> LMDataset:
    if not isinstance(data, Dataset):
        raise DataError(
            f"data is {type(data).__name__}; expected an LMDataset or BidirectionalLMDataset"
        )
    return data.readers[0] if isinstance(data, BidirectionalLMDataset) else data


def _check_restart(restart_ckpt_file: str | None, save_dir: str | Path) -> None:
    if restart_ckpt_file is None:
        return
    folder = os.path.dirname(os.path.abspath(expanded(restart_ckpt_file)))
    if os.path.realpath(folder) != os.path.realpath(expanded(save_dir)):
        raise BilmError(
            f"{restart_ckpt_file}: expected a checkpoint in {save_dir}, since a run continues in "
            "its own folder; bilm finetune starts a new run from stored weights"
        )
    latest = StoredRun(save_dir).path
    if os.path.basename(latest) != os.path.basename(restart_ckpt_file):
        raise BilmError(
            f"{restart_ckpt_file}: expected {latest}, from which the run continues; remove later "
            "checkpoints to start from an earlier one"
        )


def _compare_counts(n_train_tokens: int | None, reader: LMDataset) -> None:
    if n_train_tokens is None:
        return
    counted = count_tokens(reader.shards).n_predictions
    if abs(counted - n_train_tokens) > FAR * counted:
        logging.warning(
            "n_train_tokens is %s, but the text has %s; an epoch is as long as n_train_tokens says",
            f"{n_train_tokens:,}", f"{counted:,}",
        )  # fmt: skip


def _strategy(n_gpus: int) -> tf.distribute.MirroredStrategy:
    if tf.config.list_physical_devices("GPU"):
        return make_strategy(n_gpus=n_gpus)
    if n_gpus <= 1:
        return make_strategy(n_gpus=0)
    logging.warning("n_gpus is %d and there is no GPU: the CPU stands for each of them", n_gpus)
    return make_strategy(n_gpus=0, cpu_replicas=n_gpus)


def _show_progress() -> None:
    """Show the log of training: a script that sets no level would see warnings alone."""
    if logging.get_verbosity() == logging.WARNING:
        logging.set_verbosity(logging.INFO)
