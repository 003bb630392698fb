"""Times of training steps on this machine, for `--options auto`.

`measure` times them in a process of its own, which runs this module as a program: its memory is
then free again, and a library that crashes does not end the command.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.data.shards import Shards, resolve_shards
from bilm.options.run_options import RunOptions
from bilm.support.probes import answer, ask
from bilm.support.process import keep_freed_memory, share_cores
from bilm.training.devices import Devices, make_strategy
from bilm.training.plan import read_vocabulary, replica_options
from bilm.training.step import Trainer
from bilm.training.training_text import TrainingText

STEP_SECONDS = 5.0  # for which steps are timed
TIMEOUT = 600.0
CPU_INFO = Path("/proc/cpuinfo")


def measure(
    options: RunOptions,
    text: str,
    vocab_file: Path,
    on_bad_utf8: str = "error",
    precision: str | None = None,
    devices: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Return the seconds of a step of a run on a text, by precision.

    Args:
        options: options of the run.
        text: pattern of the training text.
        vocab_file: the vocabulary.
        on_bad_utf8: see `resolve_shards`.
        precision: the only one to measure; None for all that the devices have instructions for.
        devices: arguments of `make_strategy`, except the hosts; None for its defaults.
    Raises: ProbeFailure if they cannot be measured.
    """
    arguments = [options.to_dict(), text, str(vocab_file), on_bad_utf8, precision, devices]
    return ask("bilm.training.timing", json.dumps(arguments), timeout=TIMEOUT)


class TimedRun(NamedTuple):
    """A trainer and its input pipeline."""

    trainer: Trainer
    iterator: Iterator

    def step_seconds(self, seconds: float) -> list[float]:
        """Return the times of the steps in so many seconds, at least five, after a first step."""
        self.trainer.step(self.iterator, 0).global_norm.numpy()  # waits for the end of the step
        times: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 5:
            start = time.perf_counter()
            self.trainer.step(self.iterator, len(times) + 1).global_norm.numpy()
            times.append(time.perf_counter() - start)
        return times


def training_run(
    options: RunOptions,
    text: str | Shards,
    vocab_file: str | Path,
    precision: str = "float32",
    strategy: tf.distribute.Strategy | None = None,
) -> TimedRun:
    """Prepare training on shuffled text, for timing its steps.

    Args:
        options: options of the run.
        text: the training text: its files, or a pattern.
        vocab_file: the vocabulary.
        precision: see `RunSettings`.
        strategy: see `Devices`.
    """
    vocab, _ = read_vocabulary(vocab_file, options)
    devices = Devices(strategy)
    options = options.replace(decay="none")  # a decay requires the length of the run
    options = replica_options(options, vocab.size, devices.n_replicas)
    trainer = Trainer(options, vocab.size, devices, precision=precision)
    batches = TrainingText(options, vocab, resolve_shards(text), seed=0).batches(devices, None)
    return TimedRun(trainer, batches)


def precisions(devices: Devices) -> tuple[str, ...]:
    """Return float32, and bfloat16 if the devices have instructions for it: it is very slow without
    them."""
    if devices.names[0].startswith("GPU"):
        has_bfloat16 = True
        for gpu in tf.config.get_visible_devices("GPU"):
            details = tf.config.experimental.get_device_details(gpu)
            generation, *_ = details.get("compute_capability", (0,))
            has_bfloat16 &= generation >= 8
    else:
        flags = CPU_INFO.read_text() if CPU_INFO.exists() else ""
        has_bfloat16 = bool(re.search(r"\b(avx512_bf16|amx_bf16)\b", flags))
    return ("float32", "bfloat16") if has_bfloat16 else ("float32",)


def main(arguments: str) -> None:
    """Answer with the seconds of a step, by precision; `arguments`: those of `measure`, as JSON."""
    keep_freed_memory()  # like the commands
    share_cores()
    values, pattern, vocab_file, on_bad_utf8, precision, devices = json.loads(arguments)
    options = RunOptions.from_dict(values)
    text = resolve_shards(pattern, on_bad_utf8)
    strategy = make_strategy(**devices or {})
    step_seconds = {}
    for name in [precision] if precision else precisions(Devices(strategy)):
        run = training_run(options, text, vocab_file, name, strategy)
        step_seconds[name] = statistics.median(run.step_seconds(STEP_SECONDS)[1:])
    answer(step_seconds)


if __name__ == "__main__":
    main(sys.argv[1])
