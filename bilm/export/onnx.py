"""Export of `Elmo` as an ONNX model, which runs without TensorFlow."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from bilm.elmo.layer import Elmo
from bilm.errors import WeightsError
from bilm.export.saved_model import require_strings, serving_outputs
from bilm.layers.onnx_graph import OPSET
from bilm.support.files import replacing
from bilm.support.imports import needed

PROBE = ["The", "bank", "closed", "early", "."]  # sentence that an export is tested with
TOLERANCE = 1e-4  # maximum error on the test input, relative to the largest value


def export_onnx(elmo: Elmo, path: str | Path) -> None:
    """Export the first representation of an `Elmo` layer to one ONNX file, after a comparison with
    ONNX Runtime: some versions of the converter reverse the order of loops.

    The input is `ids` int32 (B, T + 2, C), the character ids that `elmo.batcher()` returns; B is at
    least 1. The outputs are `mean` float32 (B, 2 P), the mean of the output of the layer over the
    tokens of a sentence; `layers` float32 (B, layers + 1, T, 2 P); and `n_tokens` int32 (B,).
    Values at padding are 0.

    Raises: OptionsError if the layer is stateful or its model reads words; WeightsError if the
        values differ; ImportError without the extra `onnx`.
    """
    require_strings(elmo, "an ONNX model")
    with needed("onnx", "An export to ONNX"):
        import onnxruntime
        import tf2onnx
    probe = np.asarray(elmo.batcher().batch_sentences([PROBE, PROBE[:2]]), np.int32)
    signature = [tf.TensorSpec((None, None, probe.shape[2]), tf.int32, name="ids")]

    @tf.function(input_signature=signature, autograph=False)
    def run(ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return serving_outputs(elmo, ids)

    expected = {name: value.numpy() for name, value in run(tf.constant(probe)).items()}
    with replacing(path) as temporary:
        tf2onnx.convert.from_function(run, signature, opset=OPSET, output_path=str(temporary))
        session = onnxruntime.InferenceSession(temporary, providers=["CPUExecutionProvider"])
        outputs = session.run(list(expected), {"ids": probe})
        for (name, value), output in zip(expected.items(), outputs, strict=True):
            bound = TOLERANCE * max(np.abs(value).max(), 1)
            error = np.abs(output - value).max()
            if not error <= bound:  # also if it is nan
                raise WeightsError(
                    f"{path}: {name} differs by {error:.2g} in ONNX Runtime, expected at most "
                    f"{bound:.2g}; the file was not written; try another version of tf2onnx"
                )
