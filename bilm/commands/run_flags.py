"""Flags that the commands which train have in common."""

from __future__ import annotations

from typing import Any

from absl import flags

from bilm.commands import flag_kinds
from bilm.data.shards import require_files, resolve_shards
from bilm.errors import OptionsError
from bilm.options import MAX_SEED

FLAGS = flags.FLAGS


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
    flag_kinds.define_on_bad_utf8()
    flags.DEFINE_integer("checkpoint_steps", 1000, "Steps between checkpoints.", 1)
    flags.DEFINE_float(
        "checkpoint_minutes", 15.0, "Minutes between checkpoints, if that is less.", 0
    )
    flags.DEFINE_integer("keep_checkpoints", 3, "How many checkpoints stay, the best apart.", 1)
    flags.DEFINE_integer("log_steps", None, "Steps between reports [one every 5 seconds].", 1)


def arguments() -> dict[str, Any]:
    """Return what the flags say as arguments of `bilm.training.run.train`, the devices included.

    Raises: OptionsError, naming the flag, for devices that are no numbers or not there.
    """
    from bilm.training.run import Saving, make_strategy

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
