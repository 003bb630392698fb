"""Probes of `bilm doctor`: computations in processes of their own.

The first argument of this program is the name of a function: see `bilm.support.probes`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from bilm.support.probes import answer

GOLDEN = Path(__file__).with_name("golden_case")
WORDS, N_SENTENCES = 20, 640  # of the text that is timed


def tensorflow() -> dict[str, Any]:
    """Import TensorFlow and list its devices."""
    import tensorflow as tf

    build = tf.sysconfig.get_build_info()
    gpus = tf.config.list_physical_devices("GPU")
    details = tf.config.experimental.get_device_details
    return {
        "built for": f"CUDA {build['cuda_version']}" if build.get("is_cuda_build") else "the CPU",
        "gpus": [details(gpu).get("device_name") or gpu.name for gpu in gpus],
    }


def golden(precision: str) -> dict[str, Any]:
    """Embed the sentences of `golden_case/`, whose vectors bilm-tf computed.

    The environment selects backend and device.
    """
    import h5py
    import keras
    import numpy as np

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(False)
    from bilm.embedding.embedder import ElmoEmbedder

    embedder = ElmoEmbedder(GOLDEN / "options.json", GOLDEN / "weights.hdf5", precision=precision)
    sentences = json.loads((GOLDEN / "sentences.json").read_text("utf-8"))
    with h5py.File(GOLDEN / "expected.hdf5", "r") as expected:
        found = [
            np.abs(vectors - expected[f"sentence_{number}"][()]).max()
            for number, vectors in enumerate(embedder.embed_sentences(sentences))
        ]
    return {"difference": float(np.max(found))}


def embedding() -> dict[str, Any]:
    """Time the embedding of random sentences with `novels-en`.

    The probability of a word is inversely proportional to its rank (Zipf's law).
    """
    import numpy as np

    from bilm.embedding.embedder import ElmoEmbedder
    from bilm.storage.stored_model import open_model
    from bilm.support.process import keep_freed_memory, share_cores

    keep_freed_memory()  # like the commands
    share_cores()
    stored = open_model("novels-en")
    vocab = stored.vocabulary()
    weights = 1 / np.arange(1, vocab.size + 1)
    draw = np.random.default_rng(0)
    ids = draw.choice(vocab.size, (N_SENTENCES, WORDS), p=weights / weights.sum())
    sentences = [[vocab.id_to_word(k) for k in row] for row in ids.tolist()]
    embedder = ElmoEmbedder(stored)
    embedder.embed_batch(sentences[:8])
    start = time.perf_counter()
    n_words = sum(vectors.shape[1] for vectors in embedder.embed_sentences(sentences))
    return {"rate": n_words / (time.perf_counter() - start)}


if __name__ == "__main__":
    answer(globals()[sys.argv[1]](*sys.argv[2:]))
