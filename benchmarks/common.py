"""Shared by the benchmarks: matrix-product rate, memory, text, models, a training run, output."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import TYPE_CHECKING, NamedTuple

from bilm.data.vocabulary import MARKS
from bilm.support.process import LOG_LEVEL, keep_freed_memory, quiet, share_cores

if TYPE_CHECKING:
    from bilm.language_model import BiLM
    from bilm.options.model_options import ModelOptions
    from bilm.options.run_options import RunOptions
    from bilm.training.step import Trainer

quiet()  # like the commands
keep_freed_memory()
share_cores()
START = time.perf_counter()
PLACES = 10  # positions of a character filter in an English word: 9 bytes with its marks
CLASSICS = Path(__file__).resolve().parents[2] / "shared" / "data" / "classics_en"


def seconds_since_start() -> float:
    """Return the seconds since the start of this process, including interpreter and imports."""
    try:
        started = float(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:  # not Linux: seconds since the import of this module
        return time.perf_counter() - START
    return uptime - started / os.sysconf("SC_CLK_TCK")


def gemm_rates() -> dict[str, float]:
    """Return the GFLOP/s of a product in both precisions, of a process with default threads."""
    command = [sys.executable, Path(__file__).with_name("gemm.py")]
    env = {name: value for name, value in os.environ.items() if name != LOG_LEVEL}
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=env).stdout)


def useful_flops(options: ModelOptions, distinct_per_token: float) -> float:
    """Return the forward work per token in both directions, in FLOP. Each distinct token is encoded
    once, at the filter positions that overlap it and at one of padding."""
    cnn, lstm = options.char_cnn, options.lstm
    encoder = 0
    if cnn is not None:
        n_filters = sum(n for _, n in cnn.filters)
        for width, n in cnn.filters:
            encoder += 2 * width * cnn.embedding.dim * n * PLACES
        encoder += cnn.n_highway * 2 * 2 * n_filters**2
        encoder += 2 * n_filters * lstm.projection_dim
    layer = 2 * 2 * lstm.projection_dim * 4 * lstm.dim + 2 * lstm.dim * lstm.projection_dim
    return distinct_per_token * encoder + 2 * lstm.n_layers * layer


def figures(rate, flops_per_token, precision, before, after, first_step_s) -> dict[str, float]:
    """Return the figures that a benchmark prints and writes, for `rate` tokens per second. The
    share of int8 is that of float32. `before`, `after`: results of `gemm_rates` in the same run;
    `first_step_s`: seconds from the start of the process to the first result."""
    rates = {name: (before[name] + after[name]) / 2 for name in before}
    return {
        "tokens_per_s": rate,
        "gemm_gflops": rates["float32"],
        "gemm_gflops_bfloat16": rates["bfloat16"],
        "tokens_per_s_per_gflops": rate / rates["float32"],
        "flops_share": flops_per_token * rate / rates.get(precision, rates["float32"]) / 1e9,
        "peak_memory_mb": peak_memory_mb(),
        "first_step_s": first_step_s,
    }


def report(title: str, values: dict[str, float], path: str | None) -> None:
    """Print figures, and write them to the file of --json, if given."""
    print(title)
    for name, value in values.items():
        print(f"{name:>24}: {value:,.3f}")
    write_json(path, values)


def peak_memory_mb() -> float:
    """Return the peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def children_seconds() -> float:
    """Return the processor seconds of finished commands."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def bilm(*arguments: object) -> str:
    """Run a command of bilm; return its standard output."""
    command = [sys.executable, "-m", "bilm", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


class Text(NamedTuple):
    """Files of a corpus: pattern of the training text, vocabulary, held-out text."""

    train: str
    vocab_file: str
    heldout: str


def corpus(folder: Path, n_tokens: int | None = None) -> Text:
    """Return classics_en, or Python's own documentation if classics_en is missing, in a folder;
    `n_tokens`: vocabulary size: words are removed or fillers added; None keeps all words."""
    if CLASSICS.is_dir():
        train, heldout = str(CLASSICS / "train" / "*"), str(CLASSICS / "dev.txt")
        words = (CLASSICS / "vocab.txt").read_text(encoding="utf-8").split()[len(MARKS) :]
    else:
        print("classics_en not found: using the text of Python's own documentation")
        lines = [line for text in topics.values() for line in text.splitlines() if line.strip()]
        train, heldout = str(folder / "train.txt"), str(folder / "heldout.txt")
        held_out = lines[::10]
        del lines[::10]
        for path, part in ((train, lines), (heldout, held_out)):
            Path(path).write_text("\n".join(part), encoding="utf-8")
        words = [w for w, _ in Counter(" ".join(lines).split()).most_common()]
    if n_tokens is not None:
        words = words[: n_tokens - len(MARKS)]
        words += [f"filler{i}" for i in range(n_tokens - len(MARKS) - len(words))]
    vocab_file = folder / "vocab.txt"
    vocab_file.write_text("\n".join([*MARKS, *words]), encoding="utf-8")
    return Text(train, str(vocab_file), heldout)


def write_json(path: str | None, figures: dict) -> None:
    """Write figures to the file of --json, if given."""
    if path:
        Path(path).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def random_model(name: str, folder: Path) -> tuple[Path, Path]:
    """Write a model of a packaged size with random weights; return options and weight file."""
    from bilm.language_model import BiLM
    from bilm.options import load_run_options

    options = load_run_options(name).model
    model = BiLM(options.replace(bidirectional=True), padding=False)
    model.build()
    return write_model(model, folder)


def write_model(model: BiLM, folder: Path) -> tuple[Path, Path]:
    """Write a model as options.json and weights.hdf5; return the two files."""
    import h5py

    from bilm.storage.names import stored_variables

    options_file, weight_file = folder / "options.json", folder / "weights.hdf5"
    write_json(str(options_file), model.options.for_export())
    with h5py.File(weight_file, "w") as file:
        for name, variable in stored_variables(model).items():
            file[name] = variable.numpy()
    return options_file, weight_file


def require_settings(folder: Path, settings: dict) -> None:
    """Store the flags that determine the results in a folder, or exit if it contains others."""
    stored = folder / "settings.json"
    if stored.exists() and json.loads(stored.read_text()) != settings:
        sys.exit(f"{folder}: contains results of other flags, {stored.read_text()}; use another "
                 "--output")  # fmt: skip
    stored.write_text(json.dumps(settings))


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def sentences(path: str | Path) -> list[list[str]]:
    """Return the words of each non-empty line of a text file."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines if line.split()]


class TimedRun(NamedTuple):
    """A trainer and the batches of its steps."""

    trainer: Trainer
    batches: Iterator  # of the arguments of `Trainer.step`

    def step_seconds(self, seconds: float) -> list[float]:
        """Return the times of the steps in so many seconds, at least five, after a first step."""
        times: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 6:
            start = time.perf_counter()
            self.trainer.step(next(self.batches), len(times)).global_norm.numpy()
            times.append(time.perf_counter() - start)
        return times[1:]


def training_run(
    options: RunOptions, folder: Path, n_tokens: int, precision: str = "float32"
) -> TimedRun:
    """Prepare training on shuffled text, with `n_tokens` words, without a decay at its end."""
    from bilm.data.shards import resolve_shards
    from bilm.data.vocabulary import vocabulary_of
    from bilm.training.devices import Devices
    from bilm.training.step import Trainer
    from bilm.training.training_text import TrainingText

    text = corpus(folder, n_tokens)
    vocab = vocabulary_of(text.vocab_file, options.model, n_tokens=None)
    devices = Devices()
    is_sampled = options.sample_softmax and options.n_negative_samples_batch < vocab.size
    options = options.replace(decay="none", sample_softmax=is_sampled)
    trainer = Trainer(options, vocab.size, devices, precision=precision)
    batches = TrainingText(options, vocab, resolve_shards(text.train), seed=0).batches(devices)
    return TimedRun(trainer, (batch for batch, _ in batches))
