"""`Elmo` as an ONNX model, which runs without TensorFlow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

from bilm.elmo import Elmo
from bilm.errors import WeightsError
from bilm.extras import needed
from bilm.files import replacing
from bilm.saved_model import WARM_UP, require_strings, serving_outputs

OPSET = 17  # of ONNX 1.12, which every runtime since 2022 reads
TOLERANCE = 1e-4  # of a probe, relative to the largest value


def export_onnx(elmo: Elmo, path: str | Path) -> None:
    """Write an `Elmo` layer as one ONNX file, and run it to compare.

    ONNX has no strings to spell: the input is `ids` int32 (B, T + 2, C), characters as
    `elmo.batcher()` gives them. `bilm.Batcher` makes them without TensorFlow. The outputs are
    `mean` float32 (B, 2 P), the mean of the layer's output over a sentence's tokens; `layers`
    float32 (B, layers + 1, T, 2 P); and `n_tokens` int32 (B,). Values of tokens that are not there
    are 0.

    Args:
        elmo: the layer; its first representation is the one given.
        path: the file to write.
    Raises: OptionsError if the layer keeps state or its model reads words; WeightsError if it has
        no weights yet, or if ONNX Runtime computes other values; ImportError without the extra
        `onnx`.
    """
    require_strings(elmo, "an ONNX model")
    with needed("onnx", "An export to ONNX"):
        import onnxruntime
        import tf2onnx
    if not elmo.built:
        elmo.build()
    elmo.require_weights()
    probe = elmo.batcher().batch_sentences([WARM_UP.split(), WARM_UP.split()[:2]])
    probe = np.asarray(probe, np.int32)
    signature = [tf.TensorSpec((None, None, probe.shape[2]), tf.int32, name="ids")]

    @tf.function(input_signature=signature, autograph=False)
    def run(ids):
        return serving_outputs(elmo, ids)

    with replacing(path) as temporary:
        tf2onnx.convert.from_function(run, signature, opset=OPSET, output_path=str(temporary))
        session = onnxruntime.InferenceSession(temporary, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        found = dict(zip(names, session.run(None, {"ids": probe}), strict=True))
        _compare(found, {k: v.numpy() for k, v in run(tf.constant(probe)).items()}, path)


def _compare(
    found: dict[str, np.ndarray], expected: dict[str, np.ndarray], path: str | Path
) -> None:
    """Stop a file that computes other values: converters have turned loops around unasked."""
    for name, value in expected.items():
        bound = TOLERANCE * max(np.abs(value).max(), 1)
        error = np.abs(found[name] - value).max()
        if not error <= bound:
            raise WeightsError(
                f"{path}: {name} differs by {error:.2g} in ONNX Runtime, expected at most "
                f"{bound:.2g}, nothing kept; another version of tf2onnx may convert the model right"
            )
