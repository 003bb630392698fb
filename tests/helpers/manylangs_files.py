"""Small ELMoForManyLangs models, and PyTorch files written without PyTorch, whole or damaged."""

import io
import json
import pickle
import struct
import sys
import types
import zipfile
from collections import OrderedDict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
MARKS = ["<oov>", "<pad>", "<bos>", "<eos>", "<bow>", "<eow>"]
DIM, WIDTH, N_CHARACTERS, N_WORDS = 6, 4, 12, 9
CONFIG = {
    "encoder": {
        "name": "elmo",
        "projection_dim": WIDTH,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": DIM,
        "n_layers": 1,
    },
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 2], [2, 3]],
        "n_highway": 1,
        "word_dim": 2,
        "char_dim": 3,
        "max_characters_per_token": 8,
    },
}


class Reduced(NamedTuple):
    """A tensor as a state dict describes it, over the storage of an array."""

    array: np.ndarray
    offset: int
    shape: tuple
    strides: tuple


@cache
def torch_module() -> types.ModuleType:
    """Return a module with the names that PyTorch's pickles refer to, for writing them."""
    module, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in ("FloatStorage", "DoubleStorage", "HalfStorage", "LongStorage"):
        setattr(module, name, type(name, (), {"__module__": "torch"}))
    rebuild = types.FunctionType((lambda *a: a).__code__, {}, "_rebuild_tensor_v2")
    rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = module._rebuild_tensor_v2 = rebuild
    module._utils = utils
    return module


class Pickler(pickle._Pickler):
    """Pickles arrays as PyTorch does: as a call with a storage whose values are elsewhere."""

    def __init__(self, file, count=None, kind=None, view=None, zipped=False):
        super().__init__(file, 2)
        self.arrays: dict[int, np.ndarray] = {}
        self._how, self._zipped = (count, kind, view), zipped

    def persistent_id(self, value):
        if not isinstance(value, Storage):
            return None
        (count, kind, view), array = self._how, value.array
        key = list(self.arrays).index(id(array))
        names = {"f4": "FloatStorage", "f8": "DoubleStorage", "f2": "HalfStorage"}
        kind = getattr(torch_module(), kind or names[array.dtype.str[1:]])
        found = "storage", kind, str(key), "cpu", array.size if count is None else count
        return found if self._zipped else (*found, view)

    def save(self, value, save_persistent_id=True):
        if isinstance(value, np.ndarray):
            strides = tuple(s // value.itemsize for s in value.strides)
            value = Reduced(value, 0, value.shape, strides)
        if isinstance(value, Reduced):
            self.arrays.setdefault(id(value.array), value.array)
            arguments = Storage(value.array), *value[1:], False, OrderedDict()
            self.save_reduce(torch_module()._rebuild_tensor_v2, arguments)
        else:
            super().save(value, save_persistent_id)


class Storage(NamedTuple):
    """Numbers that a pickle refers to."""

    array: np.ndarray


def pickled(value, **how) -> tuple[bytes, list[np.ndarray]]:
    """Return a pickle and the arrays whose values are stored outside it."""
    module, file = torch_module(), io.BytesIO()
    before = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules |= {"torch": module, "torch._utils": module._utils}
    try:
        pickler = Pickler(file, **how)
        pickler.dump(value)
    finally:
        for name, old in before.items():
            sys.modules.pop(name) if old is None else sys.modules.update({name: old})
    return file.getvalue(), list(pickler.arrays.values())


def legacy(tensors, version=VERSION, little=True, **how) -> bytes:
    """Return a file in the format before PyTorch 1.6."""
    machine = {"protocol_version": 1001, "little_endian": little, "type_sizes": {"int": 4}}
    head = b"".join(pickle.dumps(value, 2) for value in (MAGIC, version, machine))
    content, arrays = pickled(tensors, **how)
    keys = pickle.dumps([str(i) for i in range(len(arrays))], 2)
    values = [struct.pack("<q", array.size) + array.tobytes() for array in arrays]
    return head + content + keys + b"".join(values)


def zipped(tensors) -> bytes:
    """Return a file in the format of PyTorch 1.6 and later."""
    content, arrays = pickled(tensors, zipped=True)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/byteorder", "little")
        for i, array in enumerate(arrays):
            archive.writestr(f"archive/data/{i}", array.tobytes())
        archive.writestr("archive/version", "3\n")
    return file.getvalue()


def small(dtype="f4") -> dict[str, dict[str, np.ndarray]]:
    """Return the tensors of a small model by file name."""
    rng, n_filters = np.random.default_rng(0), 5
    shapes = {
        "word_emb_layer.embedding.weight": (N_WORDS, 2),
        "char_emb_layer.embedding.weight": (N_CHARACTERS, 3),
        "convolutions.0.weight": (2, 3, 1),
        "convolutions.0.bias": (2,),
        "convolutions.1.weight": (3, 3, 2),
        "convolutions.1.bias": (3,),
        "highways._layers.0.weight": (2 * n_filters, n_filters),
        "highways._layers.0.bias": (2 * n_filters,),
        "projection.weight": (WIDTH, 2 + n_filters),
        "projection.bias": (WIDTH,),
    }

    def drawn(shapes):
        return {n: rng.normal(0, 0.5, shape).astype(dtype) for n, shape in shapes.items()}

    found = {"token_embedder.pkl": drawn(shapes), "encoder.pkl": drawn(lstm_shapes(DIM, WIDTH))}
    found["encoder.pkl"]["forward_layer_0.state_linearity.bias"][0] = 0.25  # tests search for it
    return found


def lstm_shapes(dim: int, width: int) -> dict[str, tuple[int, ...]]:
    shapes = {
        "input_linearity.weight": (4 * dim, width),
        "state_linearity.weight": (4 * dim, width),
    }
    shapes |= {"state_linearity.bias": (4 * dim,), "state_projection.weight": (width, dim)}
    return {f"{d}_layer_0.{n}": shapes[n] for d in ("forward", "backward") for n in shapes}


def write_model(folder: Path, dtype="f4", packed=False) -> Path:
    """Write a small model, in the format of PyTorch 1.6 if `packed`."""
    folder.mkdir(parents=True)
    for name, tensors in small(dtype).items():
        (folder / name).write_bytes(zipped(tensors) if packed else legacy(tensors))
    (folder / "config.json").write_text(json.dumps({"config_path": "/a/model.json"}))
    (folder / "model.json").write_text(json.dumps(CONFIG))
    for name, keys in {"char.dic": [*MARKS, *"Thecat"], "word.dic": [*MARKS, *"Tca"]}.items():
        lines = [f"{key}\t{i}\n" for i, key in enumerate(keys)]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    return folder
