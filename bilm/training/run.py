"""A training run: data, steps, evaluation, checkpoints, from the first step to the last."""

from __future__ import annotations

import dataclasses
import numbers
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import keras
import tensorflow as tf
from absl import logging

from bilm.data.stream import check_shards, describe_shards
from bilm.data.survey import survey
from bilm.data.text import count_tokens, resolve_shards
from bilm.data.vocabulary import MARKS, UnicodeCharsVocabulary, Vocabulary
from bilm.errors import DataError, OptionsError
from bilm.evaluation import Evaluator, Perplexity, heldout_dataset
from bilm.files import expanded
from bilm.language_model import BiLM
from bilm.memory import explaining_memory
from bilm.options import MAX_SEED, RunOptions, write_options
from bilm.storage.checkpoint import OPTIONS, copy_vocabulary
from bilm.training import plan as plans
from bilm.training.checkpoints import RunCheckpoints
from bilm.training.devices import make_strategy
from bilm.training.input import TrainingText
from bilm.training.report import RunReport
from bilm.training.run_folder import (
    check_folder,
    check_resume,
    check_same_run,
    locked,
    read_measured,
    share_rows,
    stored_option,
    tell_changes,
    tell_end,
    write_measured,
)
from bilm.training.saved import find_saved
from bilm.training.signals import stop_on_signal
from bilm.training.step import Trainer

SMALLER = "batch_size, unroll_steps, n_negative_samples_batch or the vocabulary"


class Saving(NamedTuple):
    """When a run saves, whichever comes first, and how many checkpoints it keeps."""

    steps: int = 1_000
    minutes: float = 15.0
    keep: int = 3


class TrainResult(NamedTuple):
    """How a run ended: its last step, whether it is finished, and its last held-out perplexity."""

    step: int
    finished: bool
    heldout: Perplexity | None


def train(
    options: RunOptions,
    vocab_file: str,
    train_prefix: str,
    save_dir: str,
    heldout_prefix: str | None = None,
    strategy: tf.distribute.MirroredStrategy | None = None,
    n_steps: int | None = None,
    eval_steps: int | None = None,
    seed: int = 0,
    resume: str = "auto",
    saving: Saving = Saving(),  # noqa: B008 (it cannot be changed)
    log_steps: int | None = None,
    precision: str = "float32",
    initialize: Callable[[BiLM], None] | None = None,
    on_bad_utf8: str = "error",
) -> TrainResult:
    """Train a biLM; a folder that holds an unfinished run is continued.

    Args:
        options: of the run. `n_train_tokens` None counts the corpus; `n_tokens_vocab` is taken
            from the vocabulary.
        vocab_file: one word a line by falling frequency, `<S> </S> <UNK>` among them.
        train_prefix: glob of the text shards, plain or gzip, one tokenized sentence a line.
        save_dir: where checkpoints, options, vocabulary and TensorBoard's logs go.
        heldout_prefix: glob of the text to measure on; None measures nothing.
        strategy: from `make_strategy`; None takes all GPUs, or the CPU.
        n_steps: total steps of the run; None derives them from `n_epochs`.
        eval_steps: steps between evaluations; None for one an epoch.
        seed: keys the initial weights, the order of the text, the dropout and the negatives.
        resume: "auto", "never" to refuse a folder that holds a run, "must" to refuse any other.
        saving: when to save and how much to keep; before evaluations and at the end in any case.
        log_steps: steps between reports; None for one every few seconds.
        precision: of the operands of products, see `BiLM`; a run may be continued in the other.
        initialize: gives a new run its first weights; not called where a run is continued.
        on_bad_utf8: "error", or "replace" to read bytes that are not UTF-8 as U+FFFD.
    Raises: BilmError for input that cannot be used, for a folder that another process trains in,
        for a disk that takes no checkpoint, for memory that does not suffice, and for a loss or
        gradient that is not finite.
    """
    paths = (vocab_file, train_prefix, save_dir, heldout_prefix)
    vocab_file, train_prefix, save_dir, heldout_prefix = map(expanded, paths)
    keras.utils.set_random_seed(_checked_seed(seed))
    check_folder(save_dir)
    strategy = strategy or make_strategy()
    vocab = load_vocabulary(vocab_file, options)
    check_resume(save_dir, resume)
    check_same_run(save_dir, options, vocab_file)
    heldout = heldout_prefix and _heldout(heldout_prefix, train_prefix, vocab, options, on_bad_utf8)
    completed = _complete(options, vocab, train_prefix, save_dir, on_bad_utf8)

    with locked(save_dir), explaining_memory(save_dir, SMALLER):
        # Another process may have trained here meanwhile.
        check_resume(save_dir, resume)
        check_same_run(save_dir, options, vocab_file)
        sample = options.sample_softmax  # is stored as it is asked for: more words may come
        shards = resolve_shards(train_prefix)
        saved = find_saved(save_dir)
        if saved:
            check_shards(shards, saved.shards or describe_shards(shards))
            tell_changes(save_dir, completed.replace(sample_softmax=sample))
        n_replicas = strategy.num_replicas_in_sync
        asked = saved.batch_size if saved else options.batch_size
        options = share_rows(completed, saved, n_replicas)
        plan = plans.Plan(options, n_replicas, n_steps, eval_steps)
        plans.tell(plan, options, vocab.size, n_replicas, _on_cpu(strategy))
        trainer = Trainer(options, vocab.size, strategy, seed, precision)
        checkpoints = RunCheckpoints(trainer, save_dir, describe_shards(shards), asked, saving.keep)
        if saved is not None:
            checkpoints.restore(saved)
        step = saved.step if saved else 0
        measured_step, measured = (heldout and read_measured(save_dir)) or (None, None)
        if step > plan.n_steps or (step == plan.n_steps and (measured or not heldout)):
            asked = "" if step == plan.n_steps else f"; {plan.n_steps} were asked for"
            logging.info("%s: finished at step %d%s", save_dir, step, asked)
            tell_end(save_dir, step)
            return TrainResult(step, True, measured if measured_step == step else None)
        if saved is None and initialize is not None:
            initialize(trainer.model)
        write_options(Path(save_dir) / OPTIONS, options.replace(sample_softmax=sample).to_dict())
        copy_vocabulary(vocab_file, save_dir)
        logging.info(
            "%s step %d of %d on %s: %d replicas x %d rows x %d tokens, vocabulary %d",
            "continuing at" if step else "starting at", step, plan.n_steps,
            ", ".join(name.split("device:")[-1] for name in strategy.extended.worker_devices),
            n_replicas, options.batch_size, options.unroll_steps, vocab.size,
        )  # fmt: skip
        if saved is not None:
            logging.info("continuing from %s", saved.path)
        text = TrainingText(options, vocab, train_prefix, seed, on_bad_utf8)
        report = RunReport(
            plan.predictions_a_step, plan.epoch_steps, plan.n_steps, options, save_dir, log_steps
        )
        result = _run(trainer, text, saved, plan, checkpoints, report, heldout, saving)
        if result.finished:
            tell_end(save_dir, result.step)
        else:
            how = " with --resume=auto" if resume == "never" else ""
            logging.info("the same command%s continues the run", how)
        return result


def _run(trainer, text, saved, plan, checkpoints, report, heldout, saving) -> TrainResult:
    """Take the steps from the checkpoint, or from the first, to the last or to a signal."""
    step, position = (saved.step, saved.position) if saved else (0, None)
    evaluator, perplexity = Evaluator(trainer.model), None
    iterator = iter(text.batches(trainer.strategy, saved))

    def evaluate() -> Perplexity:
        with report.paused():
            found = evaluator(heldout, checkpoints.batch_size)
            report.heldout(step, found)
            if checkpoints.save_if_best(step, found.mean):
                logging.info("step %s: the best so far, kept in best", f"{step:,}")
            write_measured(checkpoints.save_dir, step, found)
        return found

    def due() -> bool:
        return bool(heldout) and (step % plan.eval_steps == 0 or step == plan.n_steps)

    with stop_on_signal() as stop:
        if step and due() and (read_measured(checkpoints.save_dir) or [None])[0] != step:
            perplexity = evaluate()  # what the run was killed in
        last_save = time.monotonic()
        while step < plan.n_steps and not stop.is_set():
            try:
                with text.explaining(step):
                    result = trainer.step(iterator, step)
            except DataError:
                if position is not None:
                    logging.info("saved %s", checkpoints.save(step, position))
                raise
            position = text.traces.popleft().position
            report.add(step, result)
            step += 1
            late = time.monotonic() - last_save > 60 * saving.minutes
            # Before an evaluation too: whatever ends it, the steps so far are safe.
            if due() or late or step == plan.n_steps or step % saving.steps == 0:
                report.flush()
                logging.info("saved %s", checkpoints.save(step, position))
                last_save = time.monotonic()
            if due():
                perplexity = evaluate()
        if step < plan.n_steps:
            report.flush()
            logging.info("stopped at step %d, saved %s", step, checkpoints.save(step, position))
    return TrainResult(step, step == plan.n_steps, perplexity)


def _checked_seed(seed: int) -> int:
    if not (isinstance(seed, numbers.Integral) and 0 <= seed <= MAX_SEED):
        raise OptionsError(f"seed: found {seed!r}, expected an integer from 0 to {MAX_SEED}")
    return int(seed)


def _heldout(heldout_prefix, train_prefix, vocab, options, on_bad_utf8):
    """Return the reader of the held-out text, which must hold a sentence."""
    shards = resolve_shards(heldout_prefix)
    if not count_tokens(shards, on_bad_utf8=on_bad_utf8).n_sentences:
        raise DataError(f"{heldout_prefix}: no sentence; every line is blank")
    trained_on = set(map(os.path.realpath, resolve_shards(train_prefix)))
    both = [path for path in shards if os.path.realpath(path) in trained_on]
    if both:
        logging.warning(
            "%s: is trained on too, so that the held-out perplexity is not that of new text",
            ", ".join(both),
        )
    return heldout_dataset(heldout_prefix, vocab, options.bidirectional, on_bad_utf8)


def _on_cpu(strategy) -> bool:
    return all("CPU" in name for name in strategy.extended.worker_devices)


def load_vocabulary(vocab_file: str | Path, options: RunOptions) -> Vocabulary:
    """Load and check the vocabulary of a run. Raises: DataError, also if it holds no word."""
    if options.char_cnn is None:
        vocab = Vocabulary(vocab_file, validate_file=True)
    else:
        max_length = options.char_cnn.max_characters_per_token
        vocab = UnicodeCharsVocabulary(vocab_file, max_length, validate_file=True)
    if vocab.size <= len(MARKS):
        raise DataError(f"{vocab_file}: no word but the marks {' '.join(MARKS)}")
    return vocab


def _complete(options, vocab, train_prefix, save_dir, on_bad_utf8) -> RunOptions:
    """Fill in what the corpus and the vocabulary say; a run that is continued knows its count."""
    shards = resolve_shards(train_prefix)
    stored = stored_option(save_dir, "n_train_tokens")
    if options.n_train_tokens is None:
        options = dataclasses.replace(options, n_train_tokens=stored)
    if options.n_train_tokens is None:
        counts = survey(shards, vocab, on_bad_utf8, options.sample_softmax)
        if not counts.n_predictions:
            raise DataError(f"{train_prefix}: no sentence; every line is blank")
        options = dataclasses.replace(options, n_train_tokens=counts.n_predictions)
    elif stored is None:  # a run that is continued was looked at before
        survey(shards, vocab, on_bad_utf8, options.sample_softmax, sample=True)
    sampled = options.sample_softmax
    if sampled and options.n_negative_samples_batch >= vocab.size:
        logging.warning(
            "%d negatives are not below the vocabulary's %d words: the full softmax is used",
            options.n_negative_samples_batch, vocab.size,
        )  # fmt: skip
        sampled = False
    return dataclasses.replace(options, n_tokens_vocab=vocab.size, sample_softmax=sampled)
