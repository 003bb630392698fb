"""Files that state more than they hold: refused by every reader, at once and without memory."""

import json

import h5py
import keras
import numpy as np
import pytest
from stored_files import OPTIONS, load_bilm

from bilm import ElmoEmbedder
from bilm.errors import BilmError
from bilm.scoring.scorer import load_scorer

CELL = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"
on_tensorflow = keras.backend.backend() == "tensorflow"


@pytest.fixture
def model(stored_model):
    """The folder of a copy of a small model, with a softmax."""
    width = json.loads(OPTIONS.read_text())["lstm"]["projection_dim"]
    with h5py.File(stored_model / "weights_softmax.hdf5", "w") as file:
        words = ["<S>", "</S>", "<UNK>", "a"]
        file["vocabulary"] = np.array(words, dtype=h5py.string_dtype())
        file["softmax/W"], file["softmax/b"] = np.zeros((4, width), "f4"), np.zeros(4, "f4")
    return stored_model


def change(path, **datasets):
    with h5py.File(path, "r+") as file:
        for name, arguments in datasets.items():
            del file[name]
            file.create_dataset(name, **arguments)


def set_options(folder, **changes):
    values = json.loads((folder / "options.json").read_text())
    for name, values_below in changes.items():
        values[name] |= values_below
    (folder / "options.json").write_text(json.dumps(values))


every_reader = pytest.mark.parametrize("reader", [load_bilm, ElmoEmbedder, load_scorer])


def refused(call, *arguments, match=""):
    with pytest.raises(BilmError, match=match):
        call(*arguments)


@pytest.mark.parametrize("reader", [load_bilm, ElmoEmbedder])
@pytest.mark.parametrize("chunks", [None, (64, 64)])
def test_options_with_larger_sizes_than_the_weights_are_refused(reader, chunks, model):
    """A file of kilobytes whose datasets have all the shapes that the options require."""
    set_options(model, lstm={"dim": 1 << 20, "projection_dim": 1 << 19})
    shape = (1 << 20, 1 << 22)
    change(model / "weights.hdf5", **{CELL: {"shape": shape, "dtype": "f4", "chunks": chunks}})
    assert (model / "weights.hdf5").stat().st_size < 1 << 20
    refused(reader, model, match="declares .* bytes, more than the file can contain")


@every_reader
@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("lstm", {"n_layers": 40_000}),
        ("lstm", {"n_layers": 200}),
        ("char_cnn", {"n_highway": 200_000}),
        ("char_cnn", {"filters": [[1, 1]] * 100_000}),
    ],
)
def test_options_with_more_parts_than_the_weights_are_refused(reader, part, values, model):
    set_options(model, **{part: values})
    refused(reader, model, match="(n_layers|n_highway|filters): found")


@pytest.mark.parametrize("how", [{}, {"chunks": (1, 2)}, {"compression": "gzip"}])
def test_values_that_were_never_written_are_refused(how, model):
    """HDF5 reads them as zeros."""
    with h5py.File(model / "weights.hdf5") as file:
        shape = file[CELL].shape
    change(model / "weights.hdf5", **{CELL: {"shape": shape, "dtype": "f4"} | how})
    assert np.prod(shape) < 1 << 18
    refused(ElmoEmbedder, model, match=rf"{CELL} contains [\d,]+ bytes that were never written")
    change(model / "weights.hdf5", **{CELL: {"data": np.zeros(shape, "f4")} | how})
    ElmoEmbedder(model)


def test_compressed_values_have_a_size_limit(model):
    """Zeros compress a thousandfold, and so does a chunk that is larger than its dataset."""
    zeros = {"data": np.zeros((1 << 12, 1 << 12), "f4")}
    corner = {"shape": (2, 2), "maxshape": (None, None), "chunks": (1 << 12, 1 << 12)}
    message = "W_0 declares 67,108,864 bytes, more than the file can contain"
    for values in (zeros, corner):
        change(model / "weights.hdf5", **{CELL: {"dtype": "f4", "compression": "gzip", **values}})
        refused(load_bilm, model, match=message)


def test_hdf5_with_too_many_groups_is_refused(model):
    with h5py.File(model / "weights.hdf5", "r+") as file:
        group = file
        for _ in range(1500):
            group = group.create_group("g")
    refused(load_bilm, model, match="expected the weights of a model")


@pytest.mark.skipif(not on_tensorflow, reason="scoring is TensorFlow's")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": (4,), "dtype": "S5", "external": [("/etc/passwd", 0, 20)]}, "in another file"),
        ({"shape": (1 << 40,), "dtype": h5py.string_dtype()}, "more than the file can contain"),
        ({"shape": (1 << 30,), "dtype": "S9"}, "more than the file can contain"),
        ({"data": np.zeros(4, "f4")}, "`vocabulary` is not a dataset of strings"),
        ({"data": np.array([["a"]], dtype="S1")}, "`vocabulary` is not a dataset of strings"),
        ({"data": np.array([b"\xff"] * 4)}, "`vocabulary` is not UTF-8"),
    ],
)
def test_invalid_softmax_vocabulary_is_refused(arguments, message, model):
    change(model / "weights_softmax.hdf5", vocabulary=arguments)
    refused(load_scorer, model, match=message)
