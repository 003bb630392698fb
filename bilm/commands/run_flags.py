"""Flags that the commands which train have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from absl import flags

from bilm.commands import flag_kinds
from bilm.data.text import require_files, resolve_shards
from bilm.errors import OptionsError
from bilm.options import DECAYS, LEARNING_RATES, MAX_SEED

FLAGS = flags.FLAGS
RATE = ("optimizer", "learning_rate", "warmup_steps", "decay", "decay_start", "decay_floor")


def define() -> None:
    """Define the flags that say how a run is trained, watched and saved."""
    flag_kinds.define_path("train_prefix", None, "Glob of the training shards.")
    flag_kinds.define_path("save_dir", None, "Folder of the run: checkpoints, options, logs.")
    flag_kinds.define_path("heldout_prefix", None, "Glob of text to measure perplexity on.")
    flags.DEFINE_integer("eval_steps", None, "Steps between evaluations [one an epoch].", 1)
    flags.DEFINE_integer("n_steps", None, "Total steps of the run; overrides --n_epochs.", 1)
    flags.DEFINE_integer(
        "seed", 0, "Keys weights, order of the text, dropout and negatives.", 0, MAX_SEED
    )
    flags.DEFINE_enum(
        "precision", "float32", ["float32", "bfloat16"],
        "Of the operands of products; weights, states, sums and the loss stay in float32.",
    )  # fmt: skip
    flags.DEFINE_bool(
        "tf32",
        True,
        "On GPUs of compute capability 8 or more, round the operands of float32 products to TF32.",
    )
    flags.DEFINE_list("gpus", None, "Numbers of the GPUs to use, e.g. 0,1 [all].")
    flags.DEFINE_integer("n_gpus", None, "How many GPUs to use, 0 for the CPU [all].", 0)
    flags.DEFINE_integer("cpu_replicas", 1, "Logical CPU devices to train on without a GPU.", 1)
    flags.DEFINE_enum(
        "resume", "auto", ["auto", "never", "must"],
        "Continue the run in --save_dir if there is one, refuse to, or insist that there is one.",
    )  # fmt: skip
    _define_rate()
    flag_kinds.define_on_bad_utf8()
    flags.DEFINE_integer("checkpoint_steps", 1000, "Steps between checkpoints.", 1)
    flags.DEFINE_float(
        "checkpoint_minutes", 15.0, "Minutes between checkpoints, if that is less.", 0
    )
    flags.DEFINE_integer("keep_checkpoints", 3, "How many checkpoints stay, the best apart.", 1)
    flags.DEFINE_integer("log_steps", None, "Steps between reports [one every 5 seconds].", 1)


def _define_rate() -> None:
    """Define the flags of RATE, which stand for keys of the options."""
    rates = ", ".join(f"{rate} for {name}" for name, rate in LEARNING_RATES.items())
    flags.DEFINE_enum("optimizer", None, list(LEARNING_RATES), "[from the options, or adagrad].")
    flags.DEFINE_float("learning_rate", None, f"After the warm-up [from the options, or {rates}].")
    flags.DEFINE_integer(
        "warmup_steps", None, "Steps in which the learning rate rises [from the options, or 0].", 0
    )
    flags.DEFINE_enum(
        "decay", None, list(DECAYS), "How the learning rate falls to the run's end [from the "
        "options, or none].",
    )  # fmt: skip
    flags.DEFINE_float(
        "decay_start", None, "Share of the run before the decay [from the options, or 0].", 0, 1
    )
    flags.DEFINE_float(
        "decay_floor", None, "Share of the learning rate at the end [from the options, or 0].", 0, 1
    )


def changes(names: Iterable[str]) -> dict[str, Any]:
    """Return the options that flags of these names were given for."""
    return {name: FLAGS[name].value for name in names if FLAGS[name].value is not None}


def arguments() -> dict[str, Any]:
    """Return what the flags say as arguments of `bilm.TrainingRun`, the devices included.

    Raises: OptionsError, naming the flag, for devices that are no numbers or not there.
    """
    from bilm.training.devices import make_strategy
    from bilm.training.run import Saving

    for pattern in (FLAGS.train_prefix, FLAGS.heldout_prefix):
        require_files([] if pattern is None else resolve_shards(pattern))
    if FLAGS.gpus is not None and not all(k.strip().isdigit() for k in FLAGS.gpus):
        raise OptionsError(f"--gpus={','.join(FLAGS.gpus)}: expected numbers such as 0,1")
    gpus = None if FLAGS.gpus is None else [int(k) for k in FLAGS.gpus]
    alike = (
        "train_prefix save_dir heldout_prefix eval_steps n_steps seed precision resume "
        "on_bad_utf8 log_steps"
    )
    return {
        "strategy": make_strategy(gpus, FLAGS.n_gpus, FLAGS.cpu_replicas, FLAGS.tf32),
        "saving": Saving(FLAGS.checkpoint_steps, FLAGS.checkpoint_minutes, FLAGS.keep_checkpoints),
        **{name: FLAGS[name].value for name in alike.split()},
    }
