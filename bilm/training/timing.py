"""Times of training steps and of an evaluation on this machine, for `--options auto`.

`measure` times them in a process of its own, which runs this module as a program: its memory is
then free again, and a library that crashes does not end the command.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from bilm.data import BidirectionalLMDataset, UnicodeCharsVocabulary
from bilm.data.shards import Shards, resolve_shards
from bilm.data.vocabulary import Vocabulary
from bilm.options.run_options import RunOptions, load_run_options
from bilm.scoring.perplexity import Evaluator, heldout_dataset, heldout_windows
from bilm.support.probes import answer, ask
from bilm.support.process import keep_freed_memory, share_cores
from bilm.training.auto import Times
from bilm.training.devices import Devices
from bilm.training.plan import replica_options
from bilm.training.sampling import LogUniformSampler
from bilm.training.step import Trainer
from bilm.training.training_text import as_dataset, batch_signature, replica_batches

STEP_SECONDS = 5.0  # for which steps are timed
EVALUATED_WINDOWS = 8  # of an evaluation that is timed
TIMEOUT = 600.0
CPU_INFO = Path("/proc/cpuinfo")


def measure(
    options: RunOptions, text: str, vocab_file: Path, on_bad_utf8: str = "error"
) -> dict[str, Times]:
    """Return the times of a run on a text, by precision.

    Args:
        options: options of the run.
        text: pattern of the training text.
        vocab_file: the vocabulary.
        on_bad_utf8: see `resolve_shards`.
    Raises: ProbeFailure if they cannot be measured.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(options.to_dict(), file)
        file.flush()
        arguments = file.name, text, str(vocab_file), on_bad_utf8
        found = ask("bilm.training.timing", *arguments, timeout=TIMEOUT)
    return {precision: Times(*seconds) for precision, seconds in found.items()}


class TimedRun(NamedTuple):
    """A trainer, its input pipeline, an iterator over equal batches outside the pipeline, and the
    vocabulary."""

    trainer: Trainer
    iterator: Iterator
    batches: Iterator[dict]
    vocab: Vocabulary

    def step_seconds(self, seconds: float) -> list[float]:
        """Return the times of the steps in so many seconds, at least five, after a first step."""
        self.trainer.step(self.iterator, 0).global_norm.numpy()
        found: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(found) < 5:
            start = time.perf_counter()
            self.trainer.step(self.iterator, len(found) + 1).global_norm.numpy()
            found.append(time.perf_counter() - start)
        return found

    def prediction_seconds(self, text: str | Shards, batch_size: int) -> float:
        """Return the time of a prediction in all directions, with the full softmax."""
        evaluate = Evaluator(self.trainer.model)
        dataset = heldout_dataset(text, self.vocab, self.trainer.options.bidirectional)
        windows = list(islice(heldout_windows(dataset, batch_size), EVALUATED_WINDOWS))
        evaluate(iter(windows))  # compiles, for each shape
        start = time.perf_counter()
        found = evaluate(iter(windows))
        return (time.perf_counter() - start) / found.n_predictions


def training_run(
    options: RunOptions, text: str | Shards, vocab_file: str | Path, precision: str = "float32"
) -> TimedRun:
    """Prepare training on shuffled text, for timing its steps.

    Args:
        options: options of the run.
        text: the training text: its files, or a pattern.
        vocab_file: the vocabulary.
        precision: precision of the inputs of matrix products.
    """
    assert options.char_cnn is not None
    max_length = options.char_cnn.max_characters_per_token
    vocab = UnicodeCharsVocabulary(str(vocab_file), max_length, validate_file=True)
    devices = Devices()
    options = options.replace(decay="none")  # a decay requires the length of the run
    options = replica_options(options, vocab.size, devices.n_replicas)
    trainer = Trainer(options, vocab.size, devices, precision=precision)
    n_rows, n_steps = options.batch_size, options.unroll_steps
    n_negatives = options.n_negative_samples_batch if options.sample_softmax else 0
    sampler = LogUniformSampler(vocab.size, n_negatives, seed=0) if n_negatives else None

    def batches() -> Iterator[dict]:
        dataset = BidirectionalLMDataset(text, vocab, shuffle_on_load=True)
        windows = dataset.iter_batches(n_rows, n_steps)
        return replica_batches(windows, options.model, 1, sampler)

    signature = batch_signature(options.model, n_rows, n_steps, n_negatives)
    iterator = iter(as_dataset(batches, signature, devices.strategy))
    return TimedRun(trainer, iterator, batches(), vocab)


def _precisions() -> tuple[str, ...]:
    """Return float32, and bfloat16 if the processor has instructions for it: it is very slow
    without them."""
    try:
        has_bfloat16 = re.search(r"\b(avx512_bf16|amx_bf16)\b", CPU_INFO.read_text())
    except OSError:
        has_bfloat16 = None
    return ("float32", "bfloat16") if has_bfloat16 else ("float32",)


def main(options_file: str, pattern: str, vocab_file: str, on_bad_utf8: str) -> None:
    """Answer with the seconds of a step and of a prediction, by precision."""
    keep_freed_memory()  # like the commands
    share_cores()
    options, text = load_run_options(options_file), resolve_shards(pattern, on_bad_utf8)
    found = {}
    for precision in _precisions():
        run = training_run(options, text, vocab_file, precision)
        step = statistics.median(run.step_seconds(STEP_SECONDS)[1:])
        found[precision] = step, run.prediction_seconds(text, options.batch_size)
    answer(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
