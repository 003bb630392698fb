"""The measurements of gpu.py. A process prints one line of JSON per row of the table.

The arguments are the name of a function of this module, the size of the model, --all_modes to
compute also in TF32 and bfloat16, and --tiny for little work. The environment selects backend and
device. Only training needs TensorFlow. Each result is converted to NumPy before the time is taken,
because devices compute while the program goes on.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import common
import h5py
import keras
import numpy as np
from keras import ops
from train import n_distinct

from bilm.compat.bilm_tf import BidirectionalLanguageModel
from bilm.embedding.embedder import ElmoEmbedder
from bilm.layers.functional import compiled
from bilm.options.run_options import RunOptions, load_run_options
from bilm.storage.stored_model import open_model

BACKEND = keras.backend.backend()
LIBRARY = import_module(BACKEND)
GOLDEN = Path(os.environ.get("BILM_GOLDEN") or Path(__file__).parents[1] / "tests" / "golden")
MODES = {"float32": "float32", "TF32": "float32", "bfloat16": "bfloat16"}  # name -> precision
N_WORDS = 20  # of the sentence that is embedded alone
WARM_UP = 2  # training steps that are not timed

Row = dict[str, Any]


class Work(NamedTuple):
    """How much a process computes."""

    model: str
    modes: list[str]
    seconds: float = 1.0  # for which a computation is repeated
    n_batches: int = 2  # golden batches per case
    n_sentences: int = 640  # of the text that is embedded
    n_rows: int = 128  # of the LSTMs alone
    product_size: int = 4096  # rows of the matrices that are multiplied
    batch_size: int = 64  # of training, like the following ones
    n_negatives: int = 8192
    n_tokens: int = 20_000
    n_steps: int = 20
    training_s: float = 60.0  # after which training stops

    def options(self) -> RunOptions:
        """Return the options of training. Without dropout, devices compute the same losses."""
        changes = {"batch_size": self.batch_size, "n_negative_samples_batch": self.n_negatives}
        return load_run_options(self.model).replace(dropout=0.0, decay="none", **changes)


TINY = Work("", [], 0.0, 1, 8, 2, 64, 2, 64, 2000, 2)


def golden(work: Work) -> Iterator[Row]:
    """Yield the largest difference of a layer to that of bilm-tf, by case."""
    for case in sorted(path for path in (GOLDEN / "inference").iterdir() if path.is_dir()):
        files = case / "options.json", case / "weights.hdf5"
        model = BidirectionalLanguageModel(*files, stateful=True)
        differences = {}
        for mode in ("float32", "TF32"):
            select(mode)
            model.reset_states()
            found = []
            with h5py.File(case / "expected.hdf5") as expected:
                for batch in (expected[f"batch_{k}"] for k in range(work.n_batches)):
                    layers = model(batch["char_ids"][()])["lm_embeddings"]  # B, layers + 1, T, 2 P
                    inside = batch["mask"][()][:, None, :, None]
                    found.append(np.abs((layers - batch["lm_embeddings"]) * inside).max())
            differences[mode] = float(np.max(found))
        yield {"case": case.name, **differences}


# --- embedding ---


def embed(work: Work) -> Iterator[Row]:
    """Yield the speed of embedding a text and one sentence, and of the LSTMs alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = common.random_model(work.model, folder)
        n_sentences = work.n_sentences if gpu_name() else max(work.n_sentences // 10, 1)
        text = common.sentences(common.corpus(folder).heldout)[:n_sentences]
        words = [word for sentence in text for word in sentence]
        for mode in work.modes:
            select(mode)
            embedder = ElmoEmbedder(*files, precision=MODES[mode])
            rate = len(words) / embedding_seconds(embedder, text, work)
            flops = rate * common.useful_flops(embedder.options, len(set(words)) / len(words))
            stacks = open_model(*files).weights().build(precision=MODES[mode], frozen=True)
            yield {
                "mode": mode,
                "tokens/s": rate,
                "share of product": flops / product_flops(mode, work),
                "sentence, ms": 1000 * embedding_seconds(embedder, [words[:N_WORDS]], work),
                **lstm_speed(lambda *shape, model=stacks: lstms(model, *shape), work),
                "memory, MB": peak_memory_mb(),
            }


def embedding_seconds(embedder: ElmoEmbedder, text: list[list[str]], work: Work) -> float:
    """Return the seconds of embedding a text with an empty cache of words."""

    def embed_text() -> None:
        embedder.clear_cache()
        embedder.embed_batch(text)

    return median_seconds(embed_text, work)


def lstms(model: Any, n_rows: int, n_steps: int) -> Callable[[], list[np.ndarray]]:
    """Return a function that runs the LSTMs of a model on random vectors."""
    shape = n_rows, n_steps, model.options.lstm.projection_dim
    vectors = {direction: keras.random.normal(shape) for direction in model.directions}
    run = compiled(lambda x: model.windows(x, model.zero_state(n_rows))[0], gradients=False)
    return lambda: [ops.convert_to_numpy(layers[-1]) for layers in run(vectors).values()]


def pytorch_lstm(work: Work) -> Iterator[Row]:
    """Yield the speed of torch.nn.LSTM of the same sizes, without clips and skip connections."""
    import torch

    lstm = load_run_options(work.model).model.lstm
    width, device = lstm.projection_dim, "cuda" if gpu_name() else "cpu"
    for mode in work.modes:
        select(mode)
        of = {"device": device, "dtype": getattr(torch, MODES[mode])}
        sizes = width, lstm.dim, lstm.n_layers
        both = [torch.nn.LSTM(*sizes, proj_size=width, **of) for _ in range(2)]

        def stacks(n_rows: int, n_steps: int, both=both, of=of) -> Callable[[], list[np.ndarray]]:
            vectors = torch.randn((n_steps, n_rows, width), **of)
            return lambda: [stack(vectors)[0].float().cpu().numpy() for stack in both]

        with torch.no_grad():
            yield {"mode": mode, **lstm_speed(stacks, work), "memory, MB": peak_memory_mb()}


def lstm_speed(prepare: Callable[[int, int], Callable], work: Work) -> Row:
    """Return the speed of LSTMs on many rows and on one; `prepare` takes rows and steps."""
    n_steps = N_WORDS + 2  # with the marks
    many_s, one_s = (median_seconds(prepare(n, n_steps), work) for n in (work.n_rows, 1))
    rate = work.n_rows * n_steps / many_s
    return {"LSTMs alone, tokens/s": rate, "LSTMs alone, sentence, ms": 1000 * one_s}


# --- training ---


def train(work: Work) -> Iterator[Row]:
    """Yield the speed, the memory and the losses of training from the same weights."""
    options = work.options()
    n_tokens = options.batch_size * options.unroll_steps
    for mode in work.modes:
        select(mode)
        keras.utils.set_random_seed(0)
        with tempfile.TemporaryDirectory() as name:
            run = common.training_run(options, Path(name), work.n_tokens, MODES[mode])
            seconds, losses = run.steps(work.training_s, work.n_steps)
            distinct = n_distinct(next(run.batches)) / n_tokens
        rate = n_tokens / statistics.median(seconds[WARM_UP:] or seconds)
        forward = common.useful_flops(options.model, distinct)
        forward += 2 * 2 * options.lstm.projection_dim * work.n_negatives
        yield {
            "mode": mode,
            "tokens/s": rate,
            "share of product": rate * 3 * forward / product_flops(mode, work),
            "first step, s": seconds[0],
            "memory, MB": peak_memory_mb(),
            "losses": losses,
        }


def resume(work: Work) -> Iterator[Row]:
    """Yield the largest differences of a run's weights, if it is repeated and in two parts."""
    import bilm

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = common.corpus(folder, work.n_tokens)

        def weights(run: str, n_steps: int) -> dict[str, np.ndarray]:
            bilm.train(
                text.train, folder / run, options=work.options(), vocab=text.vocab_file,
                n_steps=n_steps,
            )  # fmt: skip
            model = open_model(folder / run).weights(has_softmax=True).build()
            return {name: variable.numpy() for name, variable in model.stored_variables().items()}

        weights("resumed", work.n_steps // 2)
        first, again, resumed = (weights(r, work.n_steps) for r in ("first", "again", "resumed"))
        yield {
            "steps": work.n_steps,
            "again": max(float(np.abs(first[key] - again[key]).max()) for key in first),
            "resumed": max(float(np.abs(first[key] - resumed[key]).max()) for key in first),
        }


# --- the device ---


def select(mode: str) -> None:
    """Round inputs of float32 products to TF32 or not; reset the peak of memory, except on JAX."""
    gc.collect()  # the model of the last mode
    rounds = mode != "float32"
    if BACKEND == "tensorflow":
        LIBRARY.config.experimental.enable_tensor_float_32_execution(rounds)
        if gpu_name():
            LIBRARY.config.experimental.reset_memory_stats("GPU:0")
    elif BACKEND == "torch":
        LIBRARY.backends.cuda.matmul.allow_tf32 = rounds
        LIBRARY.backends.cudnn.allow_tf32 = rounds
        if gpu_name():
            LIBRARY.cuda.reset_peak_memory_stats()
    else:
        precision = "tensorfloat32" if rounds else "highest"
        LIBRARY.config.update("jax_default_matmul_precision", precision)


def gpu_name() -> str | None:
    """Return the name of the GPU that the backend uses."""
    if BACKEND == "tensorflow":
        gpus = LIBRARY.config.list_physical_devices("GPU")
        return (
            LIBRARY.config.experimental.get_device_details(gpus[0])["device_name"] if gpus else None
        )
    if BACKEND == "torch":
        return LIBRARY.cuda.get_device_name() if LIBRARY.cuda.is_available() else None
    device = LIBRARY.devices()[0]
    return None if device.platform == "cpu" else device.device_kind


def peak_memory_mb() -> float:
    """Return the peak of the GPU's memory, or else of the memory of the process, in MB."""
    if not gpu_name():
        return common.peak_memory_mb()
    if BACKEND == "tensorflow":
        return LIBRARY.config.experimental.get_memory_info("GPU:0")["peak"] / 1e6
    if BACKEND == "torch":
        return LIBRARY.cuda.max_memory_allocated() / 1e6
    return (LIBRARY.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0) / 1e6


def product_flops(mode: str, work: Work) -> float:
    """Return the rate of products of square matrices, in FLOP/s."""
    size, n_products = work.product_size, 20 if gpu_name() else 1
    matrix = keras.random.normal((size, size), stddev=size**-0.5)  # products are as large
    matrix = ops.cast(matrix, MODES[mode])

    def multiply() -> np.ndarray:
        result = matrix
        for _ in range(n_products):
            result = ops.matmul(result, matrix)
        return ops.convert_to_numpy(ops.cast(result[:1], "float32"))

    return n_products * 2 * size**3 / median_seconds(multiply, work)


def median_seconds(function: Callable[[], Any], work: Work) -> float:
    """Return the median time of calls after a first call."""
    function()
    times: list[float] = []
    end = time.perf_counter() + work.seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    function, model, *more = sys.argv[1:]
    work = TINY if "--tiny" in more else Work("", [])
    modes = list(MODES) if "--all_modes" in more else ["float32"]
    for row in globals()[function](work._replace(model=model, modes=modes)):
        print(json.dumps({"device": gpu_name() or "CPU", **row}), flush=True)


if __name__ == "__main__":
    main()
