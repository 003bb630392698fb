"""The values that describe a run: `RunSpec`, and `RunProgress`, which its steps change."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bilm.data.shards import Shards
from bilm.data.stream import Position, describe_shards, same_shards
from bilm.data.vocabulary import Vocabulary
from bilm.options.run_options import RunOptions
from bilm.scoring.ngrams import Ngrams
from bilm.scoring.perplexity import Perplexity
from bilm.scoring.verdict import Comparison, Measurement
from bilm.storage.run_record import AutoChoice, Finetuning, HeldoutFiles, RunRecord
from bilm.training.schedule import Schedule
from bilm.training.settings import RunSettings


@dataclass(frozen=True)
class Heldout:
    """The held-out text of a run, without the sentences that the training text contains; its
    `files`, as checkpoints store them; `compared`: what a model is compared with."""

    shards: Shards
    files: HeldoutFiles
    compared: Comparison

    @property
    def n_predictions(self) -> int:
        """Predictions per direction."""
        return self.compared.n_predictions or 0

    @property
    def described(self) -> list[str]:
        """The files before they were read, and the number of sentences left out."""
        n_left_out = len(self.files.repeated)
        left_out = f"without {n_left_out} sentences of the training text"
        return [*self.files.text, *([left_out] if n_left_out else [])]


@dataclass(frozen=True, kw_only=True)
class RunTexts:
    """The texts and the vocabulary of a run.

    Attributes:
        text: without the sentences that are left out; `text_files`: see `describe_shards`.
        vocab: with the words, which the run stores because their file may be edited later.
        n_train_tokens, once_from: see `RunOptions`.
        heldout: None to measure nothing.
        ngrams: counts of the text; None if it was not read again, or another process stores them.
    """

    text: Shards
    text_files: list[str]
    vocab: Vocabulary
    n_train_tokens: int
    once_from: int | None
    heldout: Heldout | None
    ngrams: Ngrams | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that determines the steps of a run.

    `bilm.training.starting` makes it. It is replaced when the pace of a run with a time budget was
    measured, and when the held-out text was measured before the first step of fine-tuning.

    Args:
        options: the content of `options.json`; `batch_size` is the number of rows of a replica when
            the run was started first, and `n_rows` that of all replicas now.
        n_steps: length of the run; `eval_steps`: steps between evaluations.
        settings: the requested settings, with the precision of the run.
        start: assigns the first weights to a model with this vocabulary; None to resume a
            checkpoint, or for random weights.
        auto: what `auto` chose; None for other runs.
        finetuning: None for runs that do not fine-tune a model.
        deadline: time of the clock at which the run should end; infinity for no budget.
    """

    options: RunOptions
    n_rows: int
    texts: RunTexts
    n_steps: int
    eval_steps: int
    settings: RunSettings
    start: Callable[[Any, Vocabulary], None] | None = None
    auto: AutoChoice | None = None
    finetuning: Finetuning | None = None
    deadline: float = math.inf

    @property
    def predictions_a_step(self) -> int:
        """Predictions of a step per direction."""
        return self.n_rows * self.options.unroll_steps

    @property
    def epoch_steps(self) -> int:
        """Steps of an epoch."""
        return epoch_steps(self.options, self.n_rows)

    def n_epochs(self, n_steps: int) -> float:
        """Return how often a number of steps reads the text."""
        return n_steps * self.predictions_a_step / (self.options.n_train_tokens or 1)

    @property
    def schedule(self) -> Schedule:
        """The learning rate of each step."""
        return Schedule(self.options, self.n_steps, limits_warmup=self.auto is not None)

    @property
    def is_sampled(self) -> bool:
        """Whether the loss is sampled: the vocabulary has more words than there are negatives."""
        options = self.options
        return options.sample_softmax and options.n_negative_samples_batch < self.texts.vocab.size

    @property
    def start_perplexity(self) -> Perplexity | None:
        """The perplexity of the held-out text before the first step of fine-tuning; None if it was
        not measured, or on another text."""
        source = self.finetuning
        heldout = self.texts.heldout
        if source is None or source.before is None or heldout is None:
            return None
        is_same_text = same_shards(heldout.files.text, source.text or heldout.files.text)
        return Perplexity.from_record(source.before) if is_same_text else None

    def options_of_replica(self, n_replicas: int) -> RunOptions:
        """Return the options that a replica computes with: its rows and its softmax."""
        rows = self.n_rows // n_replicas
        return self.options.replace(batch_size=rows, sample_softmax=self.is_sampled)

    def with_pace(self, n_steps: int, changes: Mapping[str, Any]) -> RunSpec:
        """Return the run with the length that its measured pace allows, and these options."""
        assert self.auto is not None
        options = self.options.replace(**changes)
        auto = self.auto.replace(n_steps=n_steps)
        return replace(self, n_steps=n_steps, options=options, auto=auto)

    def described(self) -> dict[str, Any]:
        """Return what must be the same on all workers, as JSON values by name."""
        record = replace(self, finetuning=None).record(RunProgress())  # its paths may differ
        settings = self.settings.replace(log_steps=None, ignore_memory=False)  # they may, too
        described = record.to_dict() | settings.to_dict()
        if self.texts.heldout is not None:
            described["held-out text"] = describe_shards(self.texts.heldout.shards.paths)
        return described

    def record(self, progress: RunProgress, processor_seconds: float = 0.0) -> RunRecord:
        """Return the content of a checkpoint's JSON file; `processor_seconds`: of this process."""
        return RunRecord(
            step=progress.step,
            n_steps=self.n_steps,
            seed=self.settings.seed,
            batch=(self.n_rows, self.options.batch_size),
            shards=self.texts.text_files,
            vocabulary=self.texts.vocab.digest,
            options=self.options.to_dict(),
            best=progress.best,
            auto=self.auto,
            finetuning=self.finetuning,
            heldout=None if self.texts.heldout is None else self.texts.heldout.files,
            left_out=len(self.texts.text.left_out),
            processor_seconds=round(progress.processor_seconds + processor_seconds, 1),
        )


@dataclass(frozen=True)
class RunProgress:
    """What a checkpoint adds to the spec and to the tensors: all else that steps change.

    Attributes:
        step: number of steps done.
        position: place of the readers in the text after them; None for its start.
        best: lowest perplexity of the held-out text so far; `measured`: its last evaluation.
        processor_seconds: processor time of the run in earlier processes of the chief.
    """

    step: int = 0
    position: Position | None = field(default=None, repr=False)
    best: float | None = None
    measured: Measurement | None = None
    processor_seconds: float = 0.0

    @property
    def is_measured(self) -> bool:
        """Whether the held-out text was measured after the last step."""
        return self.measured is not None and self.measured.step == self.step

    def place_checksum(self) -> int:
        """Return a checksum of the place in the text."""
        checksum = 0
        for _, array in sorted((self.position or {}).items()):
            checksum = zlib.crc32(array.tobytes(), checksum)
        return checksum


def epoch_steps(options: RunOptions, n_rows: int) -> int:
    """Return the number of steps of an epoch; `n_rows`: of all replicas."""
    return max(1, (options.n_train_tokens or 0) // (n_rows * options.unroll_steps))


def evaluation_steps(options: RunOptions, n_rows: int, n_heldout: int) -> int:
    """Return the number of steps between evaluations: whole epochs, which read more than twice as
    much as an evaluation. `n_heldout`: held-out predictions per direction."""
    steps = epoch_steps(options, n_rows)
    n_epochs = 1 + 2 * n_heldout // (steps * n_rows * options.unroll_steps)
    return n_epochs * steps
