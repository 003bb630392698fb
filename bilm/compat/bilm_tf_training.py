"""The training functions of bilm-tf with its signatures, for its scripts and copies of them."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from bilm.data.dataset import BidirectionalLMDataset, LMDataset
from bilm.errors import BilmError, DataError, WeightsError
from bilm.options import schema
from bilm.options.model_options import PROFILE
from bilm.options.run_options import RunOptions
from bilm.scoring.running_text import perplexity
from bilm.storage.stored_model import open_model
from bilm.support.model_files import OPTIONS
from bilm.training.run import TrainResult
from bilm.training.run import train as bilm_train


def load_options_latest_checkpoint(tf_save_dir: str | Path) -> tuple[dict[str, Any], str]:
    """Return the content of a run's `options.json` and the path of its latest whole checkpoint."""
    options = schema.read_object(Path(os.path.expanduser(tf_save_dir)) / OPTIONS)
    stored = open_model(tf_save_dir)
    # Selects a checkpoint whose softmax is whole too.
    stored.require_softmax("be tested or continued")
    return options, stored.require_run().path


def train(
    options: Mapping[str, Any],
    data: LMDataset,
    n_gpus: int,
    tf_save_dir: str | Path,
    tf_log_dir: str | Path,
    restart_ckpt_file: str | None = None,
) -> TrainResult:
    """Train a biLM as bilm-tf's function does, or continue the run in the folder; `bilm.train` has
    more options.

    Args:
        options: the content of an `options.json`. Unknown keys are ignored, with a warning.
        data: dataset created with `test=False`; the run uses its files, vocabulary and seed.
        n_gpus: number of replicas; without a GPU, of devices into which the CPU is split.
        tf_save_dir, tf_log_dir: the run's folder; and a folder that is ignored.
        restart_ckpt_file: the result of `load_options_latest_checkpoint`.
    Raises: BilmError for input that cannot be used, and as `bilm.train` does.
    """
    if logging.get_verbosity() == logging.WARNING:  # of a script that does not set a level
        logging.set_verbosity(logging.INFO)
    run_options = _run_options(options)
    if data.reverse or data.test:
        raise DataError(
            f"data has reverse={data.reverse} and test={data.test}; training requires a "
            "dataset with reverse=False and test=False"
        )
    if restart_ckpt_file is not None:
        _, latest = load_options_latest_checkpoint(tf_save_dir)
        if os.path.realpath(os.path.expanduser(restart_ckpt_file)) != os.path.realpath(latest):
            raise BilmError(
                f"{restart_ckpt_file}: expected {latest}, since a run continues in its own folder "
                "from its latest checkpoint; bilm finetune starts a new run from stored weights"
            )
    has_gpus = bool(tf.config.list_physical_devices("GPU"))
    if n_gpus > 1 and not has_gpus:
        logging.warning("no GPU was found: the CPU is split into %d devices (n_gpus)", n_gpus)
    return bilm_train(
        data.shards.name,
        tf_save_dir,
        options=run_options,
        vocab=str(data.vocab.filename),
        n_gpus=n_gpus if has_gpus else 0,
        cpu_replicas=max(n_gpus, 1),
        seed=data.seed,
        resume="auto" if restart_ckpt_file is None else "must",
        on_bad_utf8=data.shards.on_bad_utf8,
    )


def test(
    options: Mapping[str, Any], ckpt_file: str, data: LMDataset, batch_size: int = 256
) -> float:
    """Measure and print the perplexity of running text by the full softmax, up to the step at which
    a row finds no more text, as the reference does.

    Args:
        options: ignored; the folder of the checkpoint has its own.
        ckpt_file: result of `load_options_latest_checkpoint`; `.index` may follow.
        data: dataset created with `test=True`.
        batch_size: number of rows among which the sentences are divided.
    Returns: the perplexity: exp of the mean loss of both directions.
    Raises: DataError, OptionsError, WeightsError.
    """
    if not data.test:
        raise DataError(
            "data has test=False; evaluation requires test=True, which reads each sentence once"
        )
    index = Path(f"{os.fspath(ckpt_file).removesuffix('.index')}.index").expanduser()
    if not index.is_file():
        raise WeightsError(
            f"{index}: file not found; expected a checkpoint of a run, such as run/model.ckpt-1000"
        )
    stored = open_model(index.parent, index.name)
    stored.require_softmax("be tested")
    model = stored.weights(has_softmax=True).build()
    reads_both_directions = isinstance(data, BidirectionalLMDataset)
    reads_words = data.max_word_length is None
    has_words = model.options.char_cnn is None
    if reads_both_directions != model.options.bidirectional or reads_words != has_words:
        raise DataError(
            f"data is {type(data).__name__} with the vocabulary {data.vocab.filename}; expected "
            f"the directions {' and '.join(model.directions)}, and a vocabulary that load_vocab "
            "has loaded with the options of the model"
        )
    data.vocab.require_words_of(stored.vocabulary(data.vocab.filename))
    result = perplexity(model, data, batch_size, drop_remainder=True)
    sys.stdout.write(f"AVERAGE PERPLEXITY = {result.mean}\n")
    return result.mean


def _run_options(values: Mapping[str, Any]) -> RunOptions:
    # As JSON: NumPy numbers and tuples would change when written and read back.
    plain = json.loads(json.dumps(dict(values), default=lambda value: value.item()))
    plain.pop(PROFILE, None)  # of the run that is continued
    options = RunOptions.from_dict(plain, strict=False)
    unknown = list(options.other_names())
    if unknown:
        logging.warning("options: unknown keys are ignored: %s", ", ".join(unknown))
    return options
