#!/usr/bin/env python
"""Words per second of an exported model in ONNX Runtime, compared with the Keras layer.

Examples:
  python benchmarks/onnx_speed.py --model small
  python benchmarks/onnx_speed.py --model original --n_batches 2 --n_rounds 3

Both compute the same outputs from the ids of the same batches, in alternating rounds; medians are
reported. The model has random weights. The
text is the text of embed.py.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import common
import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_enum("model", "small", ["tiny", "small", "medium", "original"], "Size of the model.")
flags.DEFINE_integer("batch_size", 32, "Sentences per batch.", 1)
flags.DEFINE_integer("n_batches", 8, "Batches per round.", 1)
flags.DEFINE_integer("n_rounds", 5, "Rounds of each variant.", 1)
flags.DEFINE_string("json", None, "JSON file for the figures.")


def ways_and_batches(folder: Path) -> tuple[dict[str, Callable], list[np.ndarray], int]:
    """Return functions from ids to means, the ids of each batch, and the number of words."""
    import onnxruntime
    import tensorflow as tf

    from bilm import Elmo
    from bilm.export.onnx import export_onnx
    from bilm.export.saved_model import serving_outputs

    elmo = Elmo(*common.random_model(FLAGS.model, folder), combine="average")
    elmo.build()
    ways: dict[str, Callable] = {}
    export_onnx(elmo, folder / "elmo.onnx")
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(folder / "elmo.onnx", providers=providers)
    ways["onnx"] = lambda ids: session.run(["mean", "layers"], {"ids": ids})[0]
    layer = tf.function(lambda ids: serving_outputs(elmo, ids), reduce_retracing=True)
    size = FLAGS.batch_size
    sentences = common.sentences(common.corpus(folder).heldout)[: size * FLAGS.n_batches]
    groups = [sentences[i : i + size] for i in range(0, len(sentences), size)]
    batches = [np.asarray(elmo.batcher().batch_sentences(group), np.int32) for group in groups]
    ways["layer"] = lambda ids: layer(tf.constant(ids))["mean"].numpy()
    return ways, batches, sum(map(len, sentences))


def main(argv):
    del argv
    with tempfile.TemporaryDirectory() as name:
        ways, batches, n_words = ways_and_batches(Path(name))
    for ids in batches:  # the first call of each shape is slower
        means = {way: embed(ids) for way, embed in ways.items()}
        np.testing.assert_allclose(means["onnx"], means["layer"], atol=1e-5)
    rates = {way: [] for way in ways}
    for _ in range(FLAGS.n_rounds):
        for way, embed in ways.items():
            start = time.perf_counter()
            for ids in batches:
                embed(ids)
            rates[way].append(n_words / (time.perf_counter() - start))
    figures = {f"{way}_words_per_s": statistics.median(found) for way, found in rates.items()}
    pairs = zip(rates["onnx"], rates["layer"], strict=True)
    figures["onnx_to_layer"] = statistics.median(x / y for x, y in pairs)
    common.report(f"{FLAGS.model}, {n_words:,} words", figures, FLAGS.json)


if __name__ == "__main__":
    app.run(main)
