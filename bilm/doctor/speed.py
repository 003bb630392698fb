"""Speed of training and embedding, as a share of the device's own matrix product."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.options.model_options import ModelOptions
from bilm.support.model_files import VOCABULARY

if TYPE_CHECKING:
    from bilm.data.shards import Shards
    from bilm.data.vocabulary import Vocabulary
    from bilm.options.run_options import RunOptions
    from bilm.training.step import Trainer

SIZE = 2048  # of the matrices
WARM_UP, N_TIMES = 25, 50  # a core reaches full speed after a second
PLACES = 10  # positions of a character filter in an English word: 9 bytes with its marks
MODEL = "novels-en"
SENTENCE_WORDS, N_SENTENCES = 20, 640
SECONDS = 5.0  # for which steps are timed
EVALUATED_WINDOWS = 8  # of an evaluation that is timed


def product_gflops(dtype: str, n_times: int = N_TIMES) -> float:
    """Return the median rate of a 2048^3 matrix product on TensorFlow's device, in GFLOP/s."""
    import tensorflow as tf

    a, b = (tf.cast(tf.random.normal((SIZE, SIZE)), dtype) for _ in range(2))
    product = tf.function(lambda: tf.reduce_sum(tf.cast(tf.matmul(a, b)[:1], tf.float32)))
    for _ in range(min(n_times, WARM_UP)):
        product().numpy()
    seconds = []
    for _ in range(n_times):
        start = time.perf_counter()
        product().numpy()
        seconds.append(time.perf_counter() - start)
    return 2 * SIZE**3 / statistics.median(seconds) / 1e9


def useful_flops(options: ModelOptions, distinct_per_token: float) -> float:
    """Return the forward work per token in both directions, in FLOP.

    Each distinct token is encoded once. The positions of a character filter that overlap the word
    count, and one position of padding.
    """
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


def random_sentences(vocab: Vocabulary, seed: int = 0) -> list[list[str]]:
    """Draw `N_SENTENCES` sentences from a vocabulary sorted by descending frequency.

    The probability of a word is inversely proportional to its rank (Zipf's law).
    """
    weights = 1 / np.arange(1, vocab.size + 1)
    draw = np.random.default_rng(seed)
    ids = draw.choice(vocab.size, (N_SENTENCES, SENTENCE_WORDS), p=weights / weights.sum())
    return [[vocab.id_to_word(k) for k in row] for row in ids.tolist()]


def embedding_rate() -> tuple[float, float]:
    """Embed random sentences with `novels-en`.

    Returns: words per second; useful GFLOP per second.
    """
    from bilm.embedding.embedder import ElmoEmbedder
    from bilm.storage.stored_model import open_model

    stored = open_model(MODEL)
    embedder = ElmoEmbedder(stored)
    sentences = random_sentences(stored.vocabulary())
    embedder.embed_batch(sentences[:8])
    start = time.perf_counter()
    n_words = sum(vectors.shape[1] for vectors in embedder.embed_sentences(sentences))
    rate = n_words / (time.perf_counter() - start)
    n_distinct = len({word for sentence in sentences for word in sentence})
    return rate, rate * useful_flops(stored.options, n_distinct / n_words) / 1e9


def training_rate() -> tuple[float, float]:
    """Train a model of the size `small`, 32 x 20, on random sentences for some seconds.

    Returns: tokens per second; useful GFLOP per second.
    """
    from bilm.options.run_options import load_run_options
    from bilm.storage.stored_model import open_model

    options = load_run_options("small").replace(batch_size=32, n_negative_samples_batch=1024)
    stored = open_model(MODEL)
    sentences = random_sentences(stored.vocabulary())
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text("".join(f"{' '.join(words)}\n" for words in sentences), encoding="utf-8")
        run = training_run(options, str(text), stored.folder / VOCABULARY)
        n_tokens = options.batch_size * options.unroll_steps
        run.trainer.step(run.iterator, 0).global_norm.numpy()
        seconds: list[float] = []
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end or len(seconds) < 5:
            start = time.perf_counter()
            run.trainer.step(run.iterator, len(seconds) + 1).global_norm.numpy()
            seconds.append(time.perf_counter() - start)
        share = statistics.mean(
            len(np.unique(batch["places"]["forward"])) / n_tokens
            for batch in islice(run.batches, 5)
        )
    rate = n_tokens / statistics.median(seconds[2:])
    forward = useful_flops(options.model, share)
    forward += 2 * 2 * options.lstm.projection_dim * options.n_negative_samples_batch
    return rate, 3 * rate * forward / 1e9


def run_seconds(
    options: RunOptions, text: str | Shards, vocab_file: str | Path, precision: str
) -> tuple[float, float]:
    """Return the median time of a training step on a text, and the time of a prediction of an
    evaluation, in seconds."""
    run = training_run(options, text, vocab_file, precision)
    run.trainer.step(run.iterator, 0).global_norm.numpy()
    seconds: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(seconds) < 5:
        start = time.perf_counter()
        run.trainer.step(run.iterator, len(seconds) + 1).global_norm.numpy()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:]), _prediction_seconds(run, text, options.batch_size)


def _prediction_seconds(run: TimedRun, text: str | Shards, batch_size: int) -> float:
    """Return the time of a prediction in all directions, with the full softmax."""
    from bilm.scoring.perplexity import Evaluator, heldout_dataset, heldout_windows

    evaluate = Evaluator(run.trainer.model)
    dataset = heldout_dataset(text, run.vocab, run.trainer.options.bidirectional)
    windows = list(islice(heldout_windows(dataset, batch_size), EVALUATED_WINDOWS))
    evaluate(iter(windows))  # compiles, for each shape
    start = time.perf_counter()
    found = evaluate(iter(windows))
    return (time.perf_counter() - start) / found.n_predictions


class TimedRun(NamedTuple):
    """A trainer, its input pipeline, an iterator over equal batches outside the pipeline, and the
    vocabulary."""

    trainer: Trainer
    iterator: Iterator
    batches: Iterator[dict]
    vocab: Vocabulary


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
    from bilm.data import BidirectionalLMDataset, UnicodeCharsVocabulary
    from bilm.training.devices import Devices
    from bilm.training.plan import replica_options
    from bilm.training.sampling import LogUniformSampler
    from bilm.training.step import Trainer
    from bilm.training.training_text import as_dataset, batch_signature, replica_batches

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
