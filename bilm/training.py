"""A training run: data, steps, evaluation, checkpoints, from the first step to the last."""

from __future__ import annotations

import dataclasses
import filecmp
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import keras
import tensorflow as tf
from absl import logging

from bilm import schema
from bilm.checkpoint import OPTIONS, VOCABULARY, RunCheckpoints, copy_vocabulary
from bilm.dataset import BidirectionalLMDataset, LMDataset
from bilm.errors import BilmError, DataError, OptionsError
from bilm.evaluation import Evaluator, Perplexity, heldout_dataset
from bilm.language_model import BiLM
from bilm.options import RunOptions, load_model_options, write_options
from bilm.pipeline import as_dataset, batch_signature, replica_batches
from bilm.report import RunReport
from bilm.sampling import LogUniformSampler
from bilm.text import count_tokens, resolve_shards
from bilm.trainer import Trainer
from bilm.vocabulary import UnicodeCharsVocabulary, Vocabulary

CHECKPOINT_STEPS, CHECKPOINT_SECONDS = 1_000, 900.0  # whichever comes first


class TrainResult(NamedTuple):
    """How a run ended: its last step, whether it is finished, and its last held-out perplexity."""

    step: int
    finished: bool
    heldout: Perplexity | None


def make_strategy(
    gpus: Sequence[int] | None = None, n_gpus: int | None = None, cpu_replicas: int = 1
) -> tf.distribute.MirroredStrategy:
    """Choose the devices: GPUs by number, the first `n_gpus`, all of them, or the CPU.

    Args:
        gpus: numbers of the GPUs to use.
        n_gpus: how many to use; 0 is the CPU.
        cpu_replicas: how many logical CPU devices share the CPU where no GPU is used.
    Raises: BilmError if more are asked for than exist.
    """
    found = tf.config.list_physical_devices("GPU")
    if gpus is None:
        gpus = range(len(found) if n_gpus is None else n_gpus)
    missing = [k for k in gpus if k >= len(found) or k < 0]
    if missing:
        raise BilmError(f"GPU {missing[0]} was asked for, but TensorFlow finds {len(found)} here")
    if gpus:
        return tf.distribute.MirroredStrategy([f"GPU:{k}" for k in gpus])
    if cpu_replicas > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        one = tf.config.LogicalDeviceConfiguration()
        with suppress(RuntimeError):  # TensorFlow has started, with the devices that there are
            tf.config.set_logical_device_configuration(cpu, [one] * cpu_replicas)
    n_cpus = len(tf.config.list_logical_devices("CPU"))
    if cpu_replicas > n_cpus:
        raise BilmError(
            f"{cpu_replicas} CPU replicas were asked for, but TensorFlow has started with {n_cpus}"
        )
    return tf.distribute.MirroredStrategy([f"CPU:{k}" for k in range(cpu_replicas)])


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
    initialize: Callable[[BiLM], None] | None = None,
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
        initialize: gives a new run its first weights; not called where a run is continued.
    Raises: BilmError for input that cannot be used.
    """
    keras.utils.set_random_seed(seed)
    strategy = strategy or make_strategy()
    vocab = _load_vocabulary(vocab_file, options)
    _check_folder(Path(save_dir), options, vocab_file)
    heldout = heldout_prefix and heldout_dataset(heldout_prefix, vocab, options.bidirectional)
    if heldout and not count_tokens(resolve_shards(heldout_prefix)).n_sentences:
        raise DataError(f"{heldout_prefix}: no sentence; every line is blank")
    options = _complete(options, vocab, train_prefix)
    plan = _Plan(options, strategy.num_replicas_in_sync, n_steps, eval_steps)

    trainer = Trainer(options, vocab.size, strategy, seed)
    checkpoints = RunCheckpoints(trainer, save_dir)
    step = checkpoints.restore()
    if step >= plan.n_steps:
        logging.info("%s: finished at step %d of %d", save_dir, step, plan.n_steps)
        return TrainResult(step, True, None)
    if not step and initialize is not None:
        initialize(trainer.model)
    write_options(Path(save_dir) / OPTIONS, options.to_dict())
    copy_vocabulary(vocab_file, save_dir)
    logging.info(
        "%s step %d of %d on %s: %d replicas x %d rows x %d tokens, vocabulary %d",
        "continuing at" if step else "starting at", step, plan.n_steps,
        ", ".join(name.split("device:")[-1] for name in strategy.extended.worker_devices),
        trainer.n_replicas, options.batch_size, options.unroll_steps, vocab.size,
    )  # fmt: skip
    failures: list[BilmError] = []
    batches = _batches(options, vocab, train_prefix, strategy, seed, step, failures)
    report = RunReport(plan.predictions_a_step, plan.epoch_steps, plan.n_steps, options, save_dir)
    evaluator, perplexity = Evaluator(trainer.model), None
    with _stop_on_signal() as stop:
        iterator, saved = iter(batches), time.monotonic()
        while step < plan.n_steps and not stop.is_set():
            with _raising(failures):
                result = trainer.step(iterator, step)
            report.add(step, result)
            step += 1
            evaluate = heldout and (step % plan.eval_steps == 0 or step == plan.n_steps)
            late = time.monotonic() - saved > CHECKPOINT_SECONDS
            # Before an evaluation too: whatever ends it, the steps so far are safe.
            if evaluate or late or step == plan.n_steps or step % CHECKPOINT_STEPS == 0:
                logging.info("saved %s", checkpoints.save(step))
                saved = time.monotonic()
            if evaluate:
                with report.paused():
                    perplexity = evaluator(heldout, options.batch_size)
                report.heldout(step, perplexity)
        if step < plan.n_steps:
            logging.info("stopped at step %d, saved %s", step, checkpoints.save(step))
            logging.info("the same command continues the run")
    return TrainResult(step, step == plan.n_steps, perplexity)


class _Plan:
    """How many steps there are in an epoch, in the run and between evaluations."""

    def __init__(self, options, n_replicas, n_steps, eval_steps):
        self.predictions_a_step = options.batch_size * options.unroll_steps * n_replicas
        self.epoch_steps = max(1, options.n_train_tokens // self.predictions_a_step)
        self.n_steps = options.n_epochs * self.epoch_steps if n_steps is None else n_steps
        self.eval_steps = self.epoch_steps if eval_steps is None else eval_steps
        if self.n_steps < 1 or self.eval_steps < 1:
            raise BilmError(f"n_steps {n_steps} and eval_steps {eval_steps}: expected at least 1")


def _load_vocabulary(vocab_file: str, options: RunOptions) -> Vocabulary:
    if options.char_cnn is None:
        return Vocabulary(vocab_file, validate_file=True)
    max_length = options.char_cnn.max_characters_per_token
    return UnicodeCharsVocabulary(vocab_file, max_length, validate_file=True)


def _complete(options: RunOptions, vocab: Vocabulary, train_prefix: str) -> RunOptions:
    """Fill in what the corpus and the vocabulary say."""
    shards = resolve_shards(train_prefix)
    if options.n_train_tokens is None:
        counts = count_tokens(
            shards, on_shard=lambda k, n: k % 10 or logging.info("counting: shard %d of %d", k, n)
        )
        if not counts.n_predictions:
            raise DataError(f"{train_prefix}: no sentence; every line is blank")
        logging.info("%d sentences, %d predictions", counts.n_sentences, counts.n_predictions)
        options = dataclasses.replace(options, n_train_tokens=counts.n_predictions)
    sampled = options.sample_softmax
    if sampled and options.n_negative_samples_batch >= vocab.size:
        logging.warning(
            "%d negatives are not below the vocabulary's %d words: the full softmax is used",
            options.n_negative_samples_batch, vocab.size,
        )  # fmt: skip
        sampled = False
    return dataclasses.replace(options, n_tokens_vocab=vocab.size, sample_softmax=sampled)


def _check_folder(save_dir: Path, options: RunOptions, vocab_file: str) -> None:
    """A folder that holds another run is not written to."""
    path = save_dir / OPTIONS
    there = load_model_options(path) if path.exists() else options.model
    found = _difference(there, options.model)
    unroll_steps = there.other.get("unroll_steps", options.unroll_steps)
    if not found and unroll_steps != options.unroll_steps:  # the place in the text would be another
        found = "unroll_steps", unroll_steps, options.unroll_steps
    if found:
        name, old, new = found
        raise OptionsError(f"{path}: {name} is {old} in this folder's run, but {new} was asked for")
    path = save_dir / VOCABULARY
    if path.exists() and not filecmp.cmp(path, vocab_file, shallow=False):
        raise DataError(f"{path}: this folder's run has another vocabulary than {vocab_file}")


def _difference(old, new, name: str = "") -> tuple[str, object, object] | None:
    """Give the dotted name and the values of the first key in which two options differ."""
    if not (isinstance(old, schema.Checked) and isinstance(new, schema.Checked)):
        return None if old == new else (name, old, new)
    names = (field.name for field in schema.keys(old))
    pairs = ((getattr(old, k), getattr(new, k), f"{name}.{k}".lstrip(".")) for k in names)
    return next(filter(None, (_difference(*pair) for pair in pairs)), None)


def _batches(options, vocab, train_prefix, strategy, seed, step, failures):
    """Give the pipeline of the run from its step `step` on."""
    n_replicas = strategy.num_replicas_in_sync
    sampler = None
    if options.sample_softmax:
        sampler = LogUniformSampler(vocab.size, options.n_negative_samples_batch, seed)
    reader = BidirectionalLMDataset if options.bidirectional else LMDataset

    def batches() -> Iterator[dict]:
        dataset = reader(train_prefix, vocab, shuffle_on_load=True, seed=seed)
        rows = options.batch_size * n_replicas
        windows = dataset.iter_batches(rows, options.unroll_steps, first_batch=step)
        return replica_batches(windows, options.model, n_replicas, sampler, step)

    n_negatives = sampler.n_samples if sampler else 0
    signature = batch_signature(
        options.model, options.batch_size, options.unroll_steps, n_negatives
    )
    return as_dataset(batches, signature, strategy, failures)


@contextmanager
def _raising(failures: list[BilmError]) -> Iterator[None]:
    """Raise what was wrong with the text in place of TensorFlow's account of it."""
    try:
        yield
    except tf.errors.OpError:
        if failures:
            raise failures[0] from None
        raise


@contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
    """Give an event that Ctrl-C or SIGTERM sets, so that the step is finished and saved.

    The second time the signal does what it did before.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def set_once(number, _):
        stop.set()
        signal.signal(number, previous[number])

    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in previous:
        signal.signal(number, set_once)
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
