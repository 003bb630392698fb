"""Export of `Elmo` as an ONNX model, which runs without TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.elmo.layer import Elmo
from bilm.embedding.backends.onnx_int8 import largest_input
from bilm.errors import WeightsError
from bilm.export.saved_model import (
    outputs_of_layers,
    require_strings,
    serving_outputs,
)
from bilm.layers.functional import checked_precision
from bilm.layers.int8_graphs import IR_VERSION, OPSET, GraphWriter, add_sentences
from bilm.support.files import replacing
from bilm.support.imports import needed

ONNX_PRECISIONS = ("float32", "int8")
PROBE = ["The", "bank", "closed", "early", "."]  # sentence that an export is tested with
TOLERANCE = 1e-4  # maximum error on the test input, relative to the largest value
INT8_TOLERANCE = 0.3  # the same for eight bits, relative to the norm of all values


def export_onnx(elmo: Elmo, path: str | Path, precision: str = "float32") -> None:
    """Export an `Elmo` layer to one ONNX file.

    The outputs of ONNX Runtime are first compared with the layer's, because some versions of the
    converter reverse the order of loops.

    The input is `ids` int32 (B, T + 2, C), the character ids that a `Batcher` returns
    (`elmo.batcher()`); `Batcher` does not require TensorFlow. B is at least 1: ONNX Runtime fails
    on a batch without sentences. The outputs are `mean` float32 (B, 2 P), the mean of the output of
    the layer over the tokens of a sentence; `layers` float32 (B, layers + 1, T, 2 P); and
    `n_tokens` int32 (B,). Values at padding are 0.

    With the precision int8, inputs and outputs are the same. The weights of LSTMs, highway layers
    and projections are stored in eight bits. The file contains operations of ONNX Runtime's own
    domain, so other runtimes cannot run it. On x86 processors without VNNI instructions its
    products are exact only if it was exported on such a processor: see
    `bilm.embedding.backends.onnx_int8`.

    Args:
        elmo: the layer; its first representation is exported.
        path: the file to write.
        precision: "float32" or "int8".
    Raises: OptionsError if the layer is stateful or its model reads words; WeightsError if it has
        no weights, or if the values that ONNX Runtime computes differ; ImportError without the
        extra `onnx`; ValueError for an unknown precision.
    """
    checked_precision(precision, ONNX_PRECISIONS)
    require_strings(elmo, "an ONNX model")
    with needed("onnx", "An export to ONNX"):
        import onnxruntime
        import tf2onnx
    probe = elmo.batcher().batch_sentences([PROBE, PROBE[:2]])
    probe = np.asarray(probe, np.int32)
    signature = [tf.TensorSpec((None, None, probe.shape[2]), tf.int32, name="ids")]

    @tf.function(input_signature=signature, autograph=False)
    def run(ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return serving_outputs(elmo, ids)

    with replacing(path) as temporary:
        if precision == "int8":
            Path(temporary).write_bytes(_int8_model(elmo, probe.shape[2]).SerializeToString())
        else:
            tf2onnx.convert.from_function(run, signature, opset=OPSET, output_path=str(temporary))
        session = onnxruntime.InferenceSession(temporary, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        found = dict(zip(names, session.run(None, {"ids": probe}), strict=True))
        for name, value in run(tf.constant(probe)).items():
            expected = value.numpy()
            bound = TOLERANCE * max(np.abs(expected).max(), 1)
            error = np.abs(found[name] - expected).max()
            if precision == "int8":
                bound = INT8_TOLERANCE * np.linalg.norm(expected)
                error = np.linalg.norm(found[name] - expected)
            if not error <= bound:
                raise WeightsError(
                    f"{path}: {name} differs by {error:.2g} in ONNX Runtime, expected at most "
                    f"{bound:.2g}; the file was not written; try another version of tf2onnx"
                )


def _int8_model(elmo: Elmo, n_characters: int) -> Any:
    """Return an `onnx.ModelProto` with products of eight bits.

    The graph of the biLM is written here; tf2onnx converts the functions of its layers.
    """
    import tf2onnx
    from onnx import compose

    writer, bilm = GraphWriter(largest_input()), elmo.bilm
    parts = add_sentences(writer, bilm.encoder, bilm.stacks, "ids", n_characters)
    mask, layers = (writer.add("Identity", part) for part in parts)
    shape = bilm.options.lstm.n_layers + 1, len(bilm.directions) * bilm.options.lstm.projection_dim
    body = writer.model(
        "bilm",
        [writer.value("ids", "B", "T", n_characters, dtype="int32")],
        [
            writer.value(mask, "B", "T", dtype="bool"),
            writer.value(layers, "B", shape[0], "T", shape[1]),
        ],
    )
    signature = [
        tf.TensorSpec((None, None), tf.bool, name="mask_with_marks"),
        tf.TensorSpec((None, shape[0], None, shape[1]), tf.float32, name="layers_with_marks"),
    ]

    @tf.function(input_signature=signature, autograph=False)
    def run(mask: tf.Tensor, layers: tf.Tensor) -> dict[str, tf.Tensor]:
        vectors = layers[:, 0, :, : bilm.options.lstm.projection_dim]
        result = {"layers": layers, "token_embeddings": vectors, "mask": mask}
        return outputs_of_layers(elmo, *elmo.selected(result))

    head, _ = tf2onnx.convert.from_function(run, signature, opset=OPSET)
    head.ir_version = IR_VERSION
    head = compose.add_prefix(head, "head_", rename_inputs=False, rename_outputs=False)
    links = [(mask, "mask_with_marks"), (layers, "layers_with_marks")]
    return compose.merge_models(body, head, links)
