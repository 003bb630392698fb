"""Probes of `bilm doctor`: computations in processes of their own.

`ask` starts one and returns its answer, or why there is none: a library can abort the process, or
wait forever.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bilm.support import probes

GOLDEN = Path(__file__).with_name("golden_case")


def ask(name: str, *arguments: str, timeout: float, **environment: str) -> dict[str, Any]:
    """Run a probe of `PROBES` in a new process: see `bilm.support.probes.ask`."""
    return probes.ask("bilm.doctor.probes", name, *arguments, timeout=timeout, **environment)


# --- the probes ---


def hdf5() -> dict[str, Any]:
    """Write and read an HDF5 file in memory."""
    import io

    import h5py
    import numpy as np

    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["values"] = np.arange(10)
    with h5py.File(buffer, "r") as file:
        equal = bool((file["values"][()] == np.arange(10)).all())
    return {"h5py": h5py.__version__, "hdf5": h5py.version.hdf5_version, "equal": equal}


def tensorflow() -> dict[str, Any]:
    """Import TensorFlow and list its devices."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    return {
        "build": {name: _plain(value) for name, value in tf.sysconfig.get_build_info().items()},
        "gpus": [
            tf.config.experimental.get_device_details(gpu).get("device_name") or gpu.name
            for gpu in gpus
        ],
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else list(value)


def libraries(cuda: str, cudnn: str) -> dict[str, Any]:
    """Load CUDA's libraries one by one."""
    from bilm.doctor.cuda import find_library, library_names

    return {name: find_library(name) for name in library_names(cuda, cudnn)}


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
    largest = 0.0
    with h5py.File(GOLDEN / "expected.hdf5", "r") as expected:
        for number, vectors in enumerate(embedder.embed_sentences(sentences)):
            wanted = expected[f"sentence_{number}"][()]
            largest = max(largest, float(np.abs(vectors - wanted).max()))
    return {"difference": largest}


def product() -> dict[str, Any]:
    """Time a matrix product in both precisions, in GFLOP/s."""
    from bilm.doctor.speed import product_gflops
    from bilm.support.process import keep_freed_memory

    keep_freed_memory()
    return {dtype: product_gflops(dtype) for dtype in ("float32", "bfloat16")}


def embedding() -> dict[str, Any]:
    """Time the embedding of sentences with `novels-en`."""
    return _rate("embedding_rate")


def training() -> dict[str, Any]:
    """Time training steps of a model of the size `small`."""
    return _rate("training_rate")


def _rate(name: str) -> dict[str, Any]:
    from bilm.doctor import speed
    from bilm.support.process import keep_freed_memory, share_cores

    keep_freed_memory()  # like the commands
    share_cores()
    rate, gflops = getattr(speed, name)()
    return {"rate": rate, "gflops": gflops}


def training_steps(
    options_file: str, pattern: str, vocab_file: str, on_bad_utf8: str = "error"
) -> dict[str, Any]:
    """Time training steps on a text, and predictions of an evaluation: see `speed.run_seconds`; in
    seconds by precision. bfloat16 is timed only if the processor has instructions for it, because
    it is very slow without them."""
    from bilm.data.shards import resolve_shards
    from bilm.doctor import speed
    from bilm.doctor.installation import has_bfloat16
    from bilm.options.run_options import load_run_options
    from bilm.support.process import keep_freed_memory, share_cores

    keep_freed_memory()  # like the commands
    share_cores()
    options = load_run_options(options_file)
    precisions = ("float32", "bfloat16") if has_bfloat16() else ("float32",)
    shards = resolve_shards(pattern, on_bad_utf8)
    return {
        precision: speed.run_seconds(options, shards, vocab_file, precision)
        for precision in precisions
    }


PROBES: Mapping[str, Callable[..., dict[str, Any]]] = {
    probe.__name__: probe
    for probe in (
        hdf5,
        tensorflow,
        libraries,
        golden,
        product,
        embedding,
        training,
        training_steps,
    )
}

if __name__ == "__main__":
    probes.answer(PROBES[sys.argv[1]](*sys.argv[2:]))
