"""Runs a SavedModel with TensorFlow's C API, without Python's TensorFlow.

    python c_api.py LIBRARY FOLDER OUTPUT.npz '{"feed": [name, [text, ...]], "fetch": {key: name}}'

A name is `operation:index`. The library is `libtensorflow_cc.so.2`, which exports the C API.
"""

import ctypes
import json
import sys
from ctypes import byref, c_char_p, c_int, c_int64, c_size_t, c_void_p

import numpy as np

STRING, STRING_BYTES = 7, 24
TYPES = {1: np.float32, 3: np.int32}


class Output(ctypes.Structure):
    _fields_ = (("operation", c_void_p), ("index", c_int))


class Library:
    """The C API."""

    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        self._status = c_void_p(self.call("NewStatus"))

    def call(self, name, *arguments, returns=c_void_p):
        function = getattr(self._library, f"TF_{name}")
        function.restype = returns
        return function(*arguments)

    def checked(self, name, *arguments):
        """Call a function whose last argument is a status."""
        found = self.call(name, *arguments, self._status)
        code = self.call("GetCode", self._status, returns=c_int)
        assert code == 0, (code, self.call("Message", self._status, returns=c_char_p))
        return found

    def output(self, graph, name):
        operation, index = name.split(":")
        found = self.call("GraphOperationByName", graph, operation.encode())
        assert found, name
        return Output(found, int(index))

    def strings(self, texts):
        """Return a tensor of strings (n,)."""
        shape = (c_int64 * 1)(len(texts))
        size = c_size_t(len(texts) * STRING_BYTES)
        tensor = c_void_p(self.call("AllocateTensor", c_int(STRING), shape, c_int(1), size))
        start = self.call("TensorData", tensor)
        for i, text in enumerate(map(str.encode, texts)):
            place = c_void_p(start + i * STRING_BYTES)
            self.call("StringInit", place, returns=None)
            self.call("StringCopy", place, text, c_size_t(len(text)), returns=None)
        return tensor

    def array(self, tensor):
        n_axes = self.call("NumDims", tensor, returns=c_int)
        shape = [self.call("Dim", tensor, c_int(i), returns=c_int64) for i in range(n_axes)]
        size = self.call("TensorByteSize", tensor, returns=c_size_t)
        data = ctypes.string_at(self.call("TensorData", tensor), size)
        dtype = TYPES[self.call("TensorType", tensor, returns=c_int)]
        return np.frombuffer(data, dtype).reshape(shape)


def main(library, folder, output, request):
    api, request = Library(library), json.loads(request)
    graph, options = c_void_p(api.call("NewGraph")), c_void_p(api.call("NewSessionOptions"))
    tags = (c_char_p * 1)(b"serve")
    session = c_void_p(
        api.checked(
            "LoadSessionFromSavedModel", options, None, folder.encode(), tags, 1, graph, None
        )
    )
    name, texts = request["feed"]
    fetches = [api.output(graph, name) for name in request["fetch"].values()]
    found = (c_void_p * len(fetches))()
    api.checked(
        "SessionRun", session, None, byref(api.output(graph, name)),
        (c_void_p * 1)(api.strings(texts)), 1, (Output * len(fetches))(*fetches), found,
        len(fetches), None, 0, None,
    )  # fmt: skip
    arrays = [api.array(c_void_p(tensor)) for tensor in found]
    np.savez(output, **dict(zip(request["fetch"], arrays, strict=True)))
    assert "tensorflow" not in sys.modules and "bilm" not in sys.modules


if __name__ == "__main__":
    main(*sys.argv[1:])
