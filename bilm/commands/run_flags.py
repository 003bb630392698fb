"""Flags that the commands which train have in common."""

from __future__ import annotations

import re
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from bilm.commands.flags import Flags
from bilm.commands.text_flags import define_on_bad_utf8
from bilm.data.shards import require_files, resolve_shards
from bilm.errors import OptionsError
from bilm.options import DECAYS, LEARNING_RATES, MAX_SEED

if TYPE_CHECKING:
    from bilm.training.hosts import Alone, Hosts

YEAR = 365 * 24 * 60  # in minutes
RATE = ("optimizer", "learning_rate", "warmup_steps", "decay", "decay_start", "decay_floor")


def define_run(
    flags: Flags, rate: str = "from the options, or ", warmup: str = "from the options, or 0"
) -> None:
    """Declare what a run reads and writes, how long it is, how it is saved, and where it runs.

    `rate` and `warmup` are where the learning rate and the steps of its warm-up come from if they
    are not given, as the help says.
    """
    flags.group("text and folder")
    flags.path("input", "Glob of the training text.", "GLOB", required=True, old=["train_prefix"])
    flags.path(
        "output",
        "Folder of the run: checkpoints, options, logs.",
        "FOLDER",
        required=True,
        old=["save_dir"],
    )
    flags.path("heldout", "Glob of text to measure perplexity on.", "GLOB", old=["heldout_prefix"])
    define_on_bad_utf8(flags)
    flags.group("length and reports")
    flags.integer("n_steps", "Total steps of the run; overrides --n_epochs.", 1)
    flags.integer("eval_steps", "Steps between evaluations [one per epoch].", 1)
    flags.integer(
        "heldout_sentences",
        "Measure on at most so many held-out sentences, spread over the text, until the run ends; "
        "then on all [all].",
        1,
    )
    flags.integer("log_steps", "Steps between reports [one every 5 seconds].", 1)
    _define_rate(flags, rate, warmup)
    flags.group("checkpoints")
    flags.choice(
        "resume",
        "Continue the run in the folder if there is one, refuse to, or insist that there is one.",
        ["auto", "never", "must"],
        default="auto",
    )
    flags.integer("checkpoint_steps", "Steps between checkpoints.", 1, default=1000)
    flags.number(
        "checkpoint_minutes", "Minutes between checkpoints, if that is less.", 0, default=15.0
    )
    flags.integer("keep_checkpoints", "How many checkpoints stay, beside the best.", 1, default=3)
    _define_devices(flags)
    _define_hosts(flags)


def _define_devices(flags: Flags) -> None:
    """Declare where a run computes, in which precision, and the seed of its random numbers."""
    flags.group("devices and numbers")
    flags.names("gpus", "Numbers of the GPUs to use, such as 0,1 [all].")
    flags.integer("n_gpus", "How many GPUs to use, 0 for the CPU [all].", 0)
    flags.integer("cpu_replicas", "Logical CPU devices to train on without a GPU.", 1, default=1)
    flags.choice(
        "precision",
        "Of the operands of products; weights, states, sums and the loss stay in float32.",
        ["float32", "bfloat16"],
        default="float32",
    )
    flags.switch(
        "tf32",
        "On GPUs of compute capability 8 or more, round the operands of float32 products to TF32.",
        default=True,
    )
    flags.integer(
        "seed",
        "Determines weights, order of the text, dropout and negatives.",
        0,
        MAX_SEED,
        default=0,
    )


def _define_hosts(flags: Flags) -> None:
    """Declare which processes share a run."""
    flags.group("several hosts (docs/clusters.md)")
    flags.names(
        "workers",
        "host:port of each process that shares the run, the chief's first [from TF_CONFIG, or "
        "this process alone].",
        "HOST:PORT,...",
    )
    flags.integer("worker_index", "Which of the workers this process is, from 0.", 0)
    flags.number("join_minutes", "How long to wait for the other workers.", 0, YEAR, default=10.0)


def _define_rate(flags: Flags, rate: str, warmup: str) -> None:
    """Declare the flags of RATE, which stand for keys of the options."""
    rates = ", ".join(f"{value} for {name}" for name, value in LEARNING_RATES.items())
    flags.group("optimizer")
    flags.choice("optimizer", "[from the options, or adagrad].", list(LEARNING_RATES))
    flags.number("learning_rate", f"After the warm-up [{rate}{rates}].", 0)
    flags.integer("warmup_steps", f"Steps in which the learning rate rises [{warmup}].", 0)
    flags.choice(
        "decay",
        "How the learning rate falls to the run's end [from the options, or none].",
        list(DECAYS),
    )
    flags.number("decay_start", "Share of the run before the decay [from the options, or 0].", 0, 1)
    flags.number(
        "decay_floor", "Share of the learning rate at the end [from the options, or 0].", 0, 1
    )


def run_hosts(args: Namespace) -> Alone | Hosts:
    """Return the workers of the run, once they have joined. Raises: OptionsError, HostError."""
    from absl import logging

    from bilm.training.cluster import find_cluster
    from bilm.training.hosts import Alone, Hosts

    cluster = find_cluster(args.workers, args.worker_index)
    if cluster is None:
        return Alone()
    hosts = Hosts(cluster, args.join_minutes)
    if not hosts.is_chief:
        logging.info("joined; %s writes the run's files and its log", hosts.name(0))
        logging.set_verbosity(logging.WARNING)
    return hosts


def _gpus(names: list[str]) -> list[int]:
    # `int` takes other scripts' digits too, and refuses very many.
    numbers = [int(k) for k in names if re.fullmatch(r"\s*[0-9]{1,4}\s*", k)]
    if len(set(numbers)) < len(names):
        raise OptionsError(f"--gpus={','.join(names)}: expected different numbers, such as 0,1")
    return numbers


def run_arguments(args: Namespace, hosts: Alone | Hosts) -> dict[str, Any]:
    """Return what the flags say as arguments of `bilm.TrainingRun`, the devices included.

    Raises: OptionsError, naming the flag, for devices that are not numbers or not there.
    """
    from bilm.training.devices import make_strategy
    from bilm.training.run import Saving

    for pattern in (args.input, args.heldout):
        require_files([] if pattern is None else resolve_shards(pattern))
    gpus = None if args.gpus is None else _gpus(args.gpus)
    alike = "eval_steps heldout_sentences n_steps seed precision resume on_bad_utf8 log_steps"
    return {
        "train_prefix": args.input,
        "save_dir": args.output,
        "heldout_prefix": args.heldout,
        "strategy": make_strategy(gpus, args.n_gpus, args.cpu_replicas, args.tf32, hosts),
        "hosts": hosts,
        "saving": Saving(args.checkpoint_steps, args.checkpoint_minutes, args.keep_checkpoints),
        **{name: getattr(args, name) for name in alike.split()},
    }


def given(args: Namespace, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the flags that were given, by name."""
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}
