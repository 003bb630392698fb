"""An estimate of the memory that a training run needs."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from absl import logging

from bilm.layers.sampled_softmax import VOCABULARY_CHUNK
from bilm.options.model_options import dense_sizes
from bilm.training.step import Trainer

FLOAT = 4  # bytes
PROGRAM = 800_000_000  # bytes of Python, TensorFlow and the text in memory, as measured
DISTINCT = 0.5  # of a window's tokens; the encoder computes only these
TOO_MUCH = 1.5  # times the memory of the machine; the estimate is rough
GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # a container's limit


def estimate_memory(trainer: Trainer, n_words: int) -> dict[str, int]:
    """Return the bytes of a replica by content; those of gradients and activations are rough.

    Args:
        n_words: size of the vocabulary.
    """
    options, model = trainer.options, trainer.model
    slots = [slot for by_name in trainer.optimizer.slots.values() for slot in by_name.values()]
    n_weights, n_slots = (
        sum(int(np.prod(v.shape)) for v in values) for values in (model.variables, slots)
    )
    n_dense, lstm = sum(dense_sizes(options.model)), options.lstm
    width, n_directions = lstm.projection_dim, len(model.directions)
    window = n_directions * options.batch_size * options.unroll_steps  # predictions
    n_rows = n_weights - n_dense  # numbers in tables of words
    n_classes = min(n_words, VOCABULARY_CHUNK)  # the full softmax is computed in slices
    if options.sample_softmax:
        n_classes = options.n_negative_samples_batch
        # Only used rows of the tables have a gradient: negatives, targets, inputs.
        n_rows = min(n_rows, (n_directions * n_classes + 2 * window) * (width + 1))
    activations = window * lstm.n_layers * (10 * lstm.dim + 4 * width)  # gates, cells, outputs
    activations += 2 * window // n_directions * n_classes  # logits of a direction, their gradient
    if options.char_cnn is not None:
        n_filters = sum(n for _, n in options.char_cnn.filters)
        n_characters = options.char_cnn.max_characters_per_token
        activations += int(DISTINCT * window) * n_characters * n_filters
    numbers = {"weights": n_weights, "slots": n_slots, "gradients": n_dense + n_rows}
    return {name: FLOAT * n for name, n in {**numbers, "activations": activations}.items()}


def machine_memory() -> int:
    """Return the bytes of memory of this machine, or of the container on it."""
    n_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(n_bytes, int(GROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no such limit, or "max"
        return n_bytes


def log_estimate(trainer: Trainer, n_words: int) -> None:
    """Log the estimate; warn if the memory of this machine is clearly too small for a run on its
    CPU."""
    names, parts = trainer.devices.names, estimate_memory(trainer, n_words)
    needed = sum(parts.values()) * len(names) + PROGRAM
    logging.info(
        "memory: about %.1f GB (%s for each of %d replicas, and %.1f for the program)",
        needed / 1e9, ", ".join(f"{name} {n / 1e9:.2f}" for name, n in parts.items()), len(names),
        PROGRAM / 1e9,
    )  # fmt: skip
    is_on_cpu = all(name.startswith("CPU") for name in names)
    if is_on_cpu and needed > TOO_MUCH * (available := machine_memory()):
        logging.warning(
            "memory: this machine has %.1f GB only, so the run may be killed; reduce batch_size, "
            "unroll_steps, n_negative_samples_batch or the vocabulary", available / 1e9,
        )  # fmt: skip
