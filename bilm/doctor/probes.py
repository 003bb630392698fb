"""Probes of `bilm doctor`: computations in processes of their own.

The first argument of this program is the name of a function: see `bilm.support.probes`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bilm.support.probes import answer

GOLDEN = Path(__file__).with_name("golden_case")


def tensorflow() -> dict[str, object]:
    """Import TensorFlow and list its devices."""
    import tensorflow as tf

    build = tf.sysconfig.get_build_info()
    gpus = tf.config.list_physical_devices("GPU")
    details = tf.config.experimental.get_device_details
    return {
        "built for": f"CUDA {build['cuda_version']}" if build.get("is_cuda_build") else "the CPU",
        "gpus": [details(gpu).get("device_name") or gpu.name for gpu in gpus],
    }


def golden(precision: str) -> dict[str, object]:
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
        differences = [
            np.abs(vectors - expected[f"sentence_{number}"][()]).max()
            for number, vectors in enumerate(embedder.embed_sentences(sentences))
        ]
    return {"difference": float(np.max(differences))}  # nan if any is nan


if __name__ == "__main__":
    answer(globals()[sys.argv[1]](*sys.argv[2:]))
