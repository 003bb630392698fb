"""Probes of `bilm doctor`: functions called in a process each, which a library can abort. The
program calls the function that its arguments name, and prints the result as one line of JSON."""

import json
import os
import sys
from pathlib import Path

GOLDEN = Path(__file__).with_name("golden_case")


def devices() -> dict[str, object]:
    """Import the backend of Keras that the environment selects, and list its GPUs."""
    backend = os.environ["KERAS_BACKEND"]
    if backend == "torch":
        import torch

        gpus = list(map(torch.cuda.get_device_name, range(torch.cuda.device_count())))
        return {"CUDA": torch.version.cuda, "gpus": gpus}
    if backend == "jax":
        import jax

        found = [device for device in jax.devices() if device.platform != "cpu"]
        return {"CUDA": None, "gpus": [device.device_kind for device in found]}
    import tensorflow as tf

    details = tf.config.experimental.get_device_details
    found = tf.config.list_physical_devices("GPU")
    gpus = [details(gpu).get("device_name") or gpu.name for gpu in found]
    return {"CUDA": tf.sysconfig.get_build_info().get("cuda_version"), "gpus": gpus}


def golden(precision: str) -> dict[str, object]:
    """Embed the sentences of `golden_case/`; the environment selects backend and device."""
    import h5py
    import numpy as np

    library = os.environ["KERAS_BACKEND"]  # "" for NumPy
    from bilm.embedding.embedder import ElmoEmbedder

    backend = "keras" if library else "numpy"
    files = GOLDEN / "options.json", GOLDEN / "weights.hdf5"
    embedder = ElmoEmbedder(*files, precision=precision, backend=backend)
    sentences = json.loads((GOLDEN / "sentences.json").read_text("utf-8"))
    with h5py.File(GOLDEN / "expected.hdf5", "r") as expected:
        differences = [
            np.abs(vectors - expected[f"sentence_{number}"][()]).max()
            for number, vectors in enumerate(embedder.embed_sentences(sentences))
        ]
    return {"difference": float(np.max(differences))}  # nan if any is nan


if __name__ == "__main__":
    sys.stdout.write(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
    sys.stdout.flush()
    os._exit(0)  # without the destructors of libraries, which can wait or crash
