"""An estimate of the memory that a training run needs."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from absl import logging

from bilm.errors import OutOfMemoryError
from bilm.layers.sampled_softmax import VOCABULARY_CHUNK
from bilm.tensors import FLOAT_BYTES, n_parameters
from bilm.training.step import Trainer

PROGRAM = 800_000_000  # bytes of Python, TensorFlow and the text in memory, as measured
GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # a container's limit


def estimate_memory(trainer: Trainer, n_words: int) -> dict[str, int]:
    """Return the bytes of a replica by content; those of gradients and activations are rough."""
    options, lstm = trainer.options, trainer.options.lstm
    slots = [slot for by_name in trainer.optimizer.slots.values() for slot in by_name.values()]
    weights, of_slots = (
        sum(int(np.prod(v.shape)) for v in values) for values in (trainer.model.variables, slots)
    )
    # Of a sampled softmax, few rows have a gradient; the full one is computed in slices.
    gradients = n_parameters(options.model) if options.sample_softmax else weights
    n_classes = min(n_words, VOCABULARY_CHUNK)
    if options.sample_softmax:
        n_classes = options.n_negative_samples_batch
    n_tokens = options.batch_size * options.unroll_steps
    layer = 10 * lstm.dim + 4 * lstm.projection_dim  # gates, cells and outputs of a token
    a_token = len(trainer.model.directions) * lstm.n_layers * layer
    a_token += 2 * n_classes  # logits of a direction, and their gradient
    if cnn := options.char_cnn:
        a_token += cnn.max_characters_per_token * sum(n for _, n in cnn.filters)
    numbers = {"weights": weights, "slots": of_slots, "gradients": gradients}
    return {k: FLOAT_BYTES * n for k, n in {**numbers, "activations": n_tokens * a_token}.items()}


def machine_memory() -> int:
    """Return the bytes of memory of this machine, or of the container on it."""
    n_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = GROUP_LIMIT.read_text().strip() if GROUP_LIMIT.exists() else "max"
    return n_bytes if limit == "max" else min(n_bytes, int(limit))


def check_memory(trainer: Trainer, n_words: int, ignore: bool) -> None:
    """Log the estimate, and compare it with this machine's memory if the run is on its CPU.

    Raises: OutOfMemoryError if it is 1.5 times as large, since it is rough, unless `ignore`.
    """
    names, parts = trainer.devices.names, estimate_memory(trainer, n_words)
    needed = sum(parts.values()) * len(names) + PROGRAM
    each = ", ".join(f"{name} {n / 1e9:.2f}" for name, n in parts.items())
    replica = f" for each of {len(names)} replicas" if len(names) > 1 else ""
    about = f"memory: about {needed / 1e9:.1f} GB ({each}{replica}, program 0.8)"
    logging.info("%s", about)
    if names[0].startswith("CPU") and not ignore and needed > 1.5 * (available := machine_memory()):
        is_large = parts["activations"] > sum(parts.values()) / 2
        smaller = "batch_size or unroll_steps" if is_large else "the vocabulary or lstm.dim"
        raise OutOfMemoryError(
            f"{about}, but this machine has {available / 1e9:.1f} GB; reduce {smaller}, or train "
            "anyway: --ignore_memory"
        )
