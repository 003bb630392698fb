"""Estimate of the memory that a run needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from absl import logging

from bilm.layers.sampled_softmax import VOCABULARY_CHUNK
from bilm.options.model_options import count_parameters
from bilm.options.run_options import RunOptions
from bilm.training.devices import Devices
from bilm.training.optimizer import OPTIMIZERS

FLOAT = 4  # bytes
PROGRAM = 800_000_000  # bytes of Python, TensorFlow and the text in memory, as measured
DISTINCT = 0.5  # of a window's tokens; the encoder computes only these
GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # a container's limit


class Memory(NamedTuple):
    """Bytes per replica by content; those of gradients and activations are rough."""

    weights: int
    slots: int
    gradients: int
    states: int
    activations: int

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {_gigabytes(n)}" for name, n in self._asdict().items())
        return f"{_gigabytes(sum(self))} ({parts})"


def estimate_memory(options: RunOptions, n_tokens: int) -> Memory:
    """Estimate the memory of a replica.

    Args:
        options: of a replica.
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
        # Only used rows of the tables have a gradient: negatives, targets, inputs.
        n_rows = min(n_rows, (n_directions * n_classes + 2 * window) * (width + 1))
    activations = window * lstm.n_layers * (10 * lstm.dim + 4 * width)  # gates, cells, outputs
    activations += 2 * window // n_directions * n_classes  # logits of a direction, their gradient
    if options.char_cnn is not None:
        n_filters = sum(n for _, n in options.char_cnn.filters)
        n_characters = options.char_cnn.max_characters_per_token
        activations += int(DISTINCT * window) * n_characters * n_filters
    return Memory(
        FLOAT * n_parameters,
        FLOAT * n_parameters * len(OPTIMIZERS[options.optimizer].slots_of("softmax/W")),
        FLOAT * (n_dense + n_rows),
        FLOAT * n_directions * lstm.n_layers * options.batch_size * (lstm.dim + width),
        FLOAT * activations,
    )


def machine_memory() -> int:
    """Return the bytes of memory of this machine, or of the container on it."""
    n_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(n_bytes, int(GROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no such limit, or "max"
        return n_bytes


def log_estimate(options: RunOptions, n_tokens: int, devices: Devices) -> None:
    """Log the estimate; warn if this machine's memory is too small. That of GPUs is not known."""
    n_parameters, _ = count_parameters(options.model, n_tokens)
    memory = estimate_memory(options, n_tokens)
    logging.info(
        "%s parameters; a replica needs about %s, the program itself %s",
        f"{n_parameters:,}", memory, _gigabytes(PROGRAM),
    )  # fmt: skip
    needed, available = sum(memory) * len(devices.names) + PROGRAM, machine_memory()
    on_cpu = all(name.startswith("CPU") for name in devices.names)
    if on_cpu and needed > available:
        logging.warning(
            "about %s are needed, but this machine has %s: the run may be killed; reduce "
            "batch_size, unroll_steps, n_negative_samples_batch or the vocabulary",
            _gigabytes(needed), _gigabytes(available),
        )  # fmt: skip


def _gigabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:,.2f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:,.2f} MB"
