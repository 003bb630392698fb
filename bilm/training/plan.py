"""What a run will take: steps, parameters and memory, known before the first step."""

from __future__ import annotations

import os
from numbers import Integral
from pathlib import Path
from typing import NamedTuple

from absl import logging

from bilm.errors import BilmError
from bilm.layers.sampled_softmax import VOCABULARY_CHUNK
from bilm.options import RunOptions
from bilm.sizes import count_parameters
from bilm.training.devices import Devices
from bilm.training.optimizer import OPTIMIZERS

MAX_STEPS = 2**31 - 1  # their numbers are int32 in the graph
FLOAT = 4  # bytes
PROGRAM = 800_000_000  # bytes that Python, TensorFlow and the text in memory take, as measured
DISTINCT = 0.5  # of a window's tokens; the encoder sees these alone
GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # what a container may take, where it says so


class Plan:
    """How many steps there are in an epoch, in the run and between evaluations.

    Args:
        options: of the run, `n_train_tokens` known; `batch_size` is a replica's.
        n_replicas: how many there are.
        n_steps: total steps; None derives them from `n_epochs`.
        eval_steps: steps between evaluations; None for an epoch.
    Raises: BilmError if a number of steps is no integer from 1 to `MAX_STEPS`.
    """

    def __init__(
        self,
        options: RunOptions,
        n_replicas: int,
        n_steps: int | None = None,
        eval_steps: int | None = None,
    ):
        self.predictions_a_step = options.batch_size * options.unroll_steps * n_replicas
        self.epoch_steps = max(1, options.n_train_tokens // self.predictions_a_step)
        self.n_steps = options.n_epochs * self.epoch_steps if n_steps is None else n_steps
        self.eval_steps = self.epoch_steps if eval_steps is None else eval_steps
        for name, value in (("n_steps", self.n_steps), ("eval_steps", self.eval_steps)):
            is_integer = isinstance(value, Integral) and not isinstance(value, bool)
            if not (is_integer and 1 <= value <= MAX_STEPS):
                raise BilmError(
                    f"{name}: found {value!r}, expected an integer from 1 to {MAX_STEPS}"
                )


class Memory(NamedTuple):
    """Bytes per replica, by what they hold; gradients and activations are rough.

    The slots are the optimizer's.
    """

    weights: int
    slots: int
    gradients: int
    states: int
    activations: int

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {_gigabytes(n)}" for name, n in self._asdict().items())
        return f"{_gigabytes(sum(self))} ({parts})"


def estimate_memory(options: RunOptions, n_tokens: int) -> Memory:
    """Tell what a replica's memory will hold.

    Args:
        options: of the run; `batch_size` is a replica's.
        n_tokens: vocabulary size.
    """
    n_parameters, n_rows = count_parameters(options.model, n_tokens)
    n_dense = n_parameters - n_rows
    lstm, width = options.lstm, options.lstm.projection_dim
    n_directions = 1 + options.bidirectional
    window = n_directions * options.batch_size * options.unroll_steps  # predictions
    n_classes = min(n_tokens, VOCABULARY_CHUNK)  # scores of the full softmax are made in slices
    if options.sample_softmax and options.n_negative_samples_batch < n_tokens:
        n_classes = options.n_negative_samples_batch
        # Rows of the tables have a gradient where they are used: negatives, targets, inputs.
        n_rows = min(n_rows, (n_directions * n_classes + 2 * window) * (width + 1))
    activations = window * lstm.n_layers * (10 * lstm.dim + 4 * width)  # gates, cells, outputs
    activations += 2 * window // n_directions * n_classes  # logits of a direction, their gradient
    if options.char_cnn is not None:
        n_characters = options.char_cnn.max_characters_per_token
        activations += int(DISTINCT * window) * n_characters * _n_filters(options)
    return Memory(
        FLOAT * n_parameters,
        FLOAT * n_parameters * len(OPTIMIZERS[options.optimizer].SLOTS),
        FLOAT * (n_dense + n_rows),
        FLOAT * n_directions * lstm.n_layers * options.batch_size * (lstm.dim + width),
        FLOAT * activations,
    )


def machine_memory() -> int:
    """Return the bytes of memory that this machine, or the container on it, has."""
    n_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(n_bytes, int(GROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no such limit, or "max"
        return n_bytes


def tell(plan: Plan, options: RunOptions, n_tokens: int, devices: Devices) -> None:
    """Say on the log what the run will take, and warn where the machine's memory is too small.

    Args:
        plan: steps.
        options, n_tokens: see `estimate_memory`.
        devices: whose memory it takes; that of GPUs is not known here.
    """
    n_parameters, _ = count_parameters(options.model, n_tokens)
    memory = estimate_memory(options, n_tokens)
    logging.info(
        "%s parameters; a replica takes about %s, the program itself %s; %s steps, %s an epoch",
        f"{n_parameters:,}", memory, _gigabytes(PROGRAM),
        f"{plan.n_steps:,}", f"{plan.epoch_steps:,}",
    )  # fmt: skip
    if options.n_train_tokens < plan.predictions_a_step:
        logging.warning(
            "the text has %s predictions and a step takes %s: each step sees the same sentences "
            "more than once; smaller are batch_size and unroll_steps",
            f"{options.n_train_tokens:,}", f"{plan.predictions_a_step:,}",
        )  # fmt: skip
    needed, there = sum(memory) * len(devices.names) + PROGRAM, machine_memory()
    if devices.on_cpu and needed > there:
        logging.warning(
            "about %s are needed, but this machine has %s: the run may be killed; smaller are "
            "batch_size, unroll_steps, n_negative_samples_batch or the vocabulary",
            _gigabytes(needed), _gigabytes(there),
        )  # fmt: skip


def _n_filters(options: RunOptions) -> int:
    return sum(n for _, n in options.char_cnn.filters)


def _gigabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:,.2f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:,.2f} MB"
