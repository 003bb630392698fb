"""One engine that computes stored biLMs, for `embedding` and `scoring`.

`backend` is the interface to the libraries that compute a model, `keras`, `numpy` and `onnx_int8`,
and chooses one. `softmax` is the output layer. `words` encodes words and caches their vectors.
`packing` runs sequences that are packed into rows.
"""

BACKENDS = ("keras", "numpy")  # names that callers choose from; `backend.open_backend` opens them
