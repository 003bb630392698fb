"""Requests that TensorFlow Serving sends itself when it loads a model.

They are messages of TensorFlow Serving (`tensorflow_serving/apis/prediction_log.proto`), written
here field by field: its Python package pins a version of TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

PLACE = Path("assets.extra") / "tf_serving_warmup_requests"  # in a SavedModel's folder
# Numbers of fields: in PredictionLog, PredictLog, PredictRequest, ModelSpec, entries of a map.
PREDICT_LOG, REQUEST, MODEL_SPEC, INPUTS, SIGNATURE_NAME, KEY, VALUE = 6, 1, 1, 2, 3, 1, 2

Request = tuple[str, Mapping[str, np.ndarray]]  # a signature's name, its inputs by name


def write_warm_up(folder: Path, requests: Sequence[Request]) -> None:
    """Write requests into the folder of a SavedModel."""
    path = folder / PLACE
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as file:
        for signature, inputs in requests:
            file.write(_prediction_log(signature, inputs))


def _prediction_log(signature: str, inputs: Mapping[str, np.ndarray]) -> bytes:
    request = _field(MODEL_SPEC, _field(SIGNATURE_NAME, signature.encode()))
    for name, value in inputs.items():
        tensor = tf.make_tensor_proto(value).SerializeToString()
        request += _field(INPUTS, _field(KEY, name.encode()) + _field(VALUE, tensor))
    return _field(PREDICT_LOG, _field(REQUEST, request))


def _field(number: int, content: bytes) -> bytes:
    """Return a field of bytes as protocol buffers store it: its number and kind, length, bytes."""
    length, digits = len(content), bytearray([number << 3 | 2])
    while length > 127:
        digits.append(length & 127 | 128)
        length >>= 7
    return bytes(digits) + bytes([length]) + content
