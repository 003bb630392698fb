"""An estimate of the memory that a training run needs."""

import math
import os
from collections.abc import Iterable
from pathlib import Path

from absl import logging

from bilm.errors import OutOfMemoryError
from bilm.layers.sampled_softmax import VOCABULARY_CHUNK
from bilm.tensors import FLOAT_BYTES, n_filters, n_parameters
from bilm.training.step import Trainer

PROGRAM = 800_000_000  # bytes of Python, TensorFlow and the text in memory, as measured
# The control groups of this process, and where their limits are, as in containers and batch jobs.
GROUPS, LIMITS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def estimate_memory(trainer: Trainer, n_words: int) -> dict[str, int]:
    """Return the bytes of a replica by content; those of gradients and activations are rough."""
    options = trainer.options
    n_weights = _size(trainer.model.variables)
    # Of a sampled softmax, few rows have a gradient; the full one is computed in slices.
    n_gradients = n_weights
    n_scores = min(n_words, VOCABULARY_CHUNK)
    if options.sample_softmax:
        n_gradients = n_parameters(options.model)
        n_scores = options.n_negative_samples_batch

    # Values of one token that the gradient reads: gates, cells and outputs of the stacks; scores of
    # one direction at a time, and their gradients; outputs of the filters.
    lstm = options.lstm
    of_layer = 10 * lstm.dim + 4 * lstm.projection_dim
    of_token = len(trainer.model.directions) * lstm.n_layers * of_layer
    of_token += 2 * n_scores
    if options.char_cnn is not None:
        cnn = options.char_cnn
        of_token += cnn.max_characters_per_token * n_filters(cnn.filters)

    sizes = {
        "weights": n_weights,
        "slots": sum(_size(slots.values()) for slots in trainer.optimizer.slots.values()),
        "gradients": n_gradients,
        "activations": options.batch_size * options.unroll_steps * of_token,
    }
    return {content: FLOAT_BYTES * size for content, size in sizes.items()}


def _size(variables: Iterable) -> int:
    return sum(math.prod(variable.shape) for variable in variables)


def machine_memory() -> float:
    """Return the bytes of memory of this machine, or the least limit of the control groups, of
    version 1 or 2, that this process is in."""
    n_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    groups = GROUPS.read_text() if GROUPS.exists() else ""
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        root, name = LIMITS, "memory.max"
        if "memory" in controllers.split(","):  # version 1
            root, name = LIMITS / "memory", "memory.limit_in_bytes"
        elif controllers:
            continue
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):  # a container's own group may be the root
            file = folder / name
            limit = file.read_text().strip() if file.exists() else "max"
            if limit != "max":
                n_bytes = min(n_bytes, int(limit))
    return n_bytes


def check_memory(trainer: Trainer, n_words: int, ignore: bool) -> None:
    """Log the estimate, a rough one; raise OutOfMemoryError, unless `ignore`, if a run on the CPU
    needs 1.5 times this machine's memory."""
    devices = trainer.devices.names
    by_content = estimate_memory(trainer, n_words)
    needed = sum(by_content.values()) * len(devices) + PROGRAM

    listed = ", ".join(f"{content} {n / 1e9:.2f}" for content, n in by_content.items())
    replicas = f" for each of {len(devices)} replicas" if len(devices) > 1 else ""
    about = f"memory: about {needed / 1e9:.1f} GB ({listed}{replicas}, program 0.8)"
    logging.info("%s", about)

    if ignore or not devices[0].startswith("CPU"):
        return
    available = machine_memory()
    if needed > 1.5 * available:
        raise OutOfMemoryError(
            f"{about}, but this machine has {available / 1e9:.1f} GB; reduce batch_size, "
            "unroll_steps, lstm.dim or the vocabulary, or train anyway: --ignore_memory"
        )
