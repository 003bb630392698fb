"""One engine that computes stored biLMs, for `embedding` and `scoring`.

`backend` is the interface to the libraries that compute a model: `keras`, `numpy` and `onnx_int8`.
`words` encodes words, with a `token_cache`; `grouping` batches items by length. Imports `storage`
and what it may import.
"""

BACKENDS = ("keras", "numpy")  # names that callers choose from; `backend.open_backend` opens them
