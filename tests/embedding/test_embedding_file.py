"""Reading files of embeddings, also of other programs; invalid files give one clear error."""

import h5py
import numpy as np
import pytest

from bilm.embedding.embedding_file import read_embeddings
from bilm.errors import DataError

VECTORS = np.zeros((3, 2, 4), np.float32)
STRING = h5py.string_dtype()


def virtual(file):
    layout = h5py.VirtualLayout((2, 4), np.float32)
    layout[:] = h5py.VirtualSource("other.hdf5", "0", (2, 4))
    file.create_virtual_dataset("0", layout)


def with_attribute(value):
    return lambda file: file.create_dataset("0", data=VECTORS).attrs.__setitem__("sentence", value)


ODD = {
    "group": (lambda f: f.create_group("0"), "expected an array"),
    "vector": (lambda f: f.create_dataset("0", data=[1.5]), "expected an array"),
    "strings": (lambda f: f.create_dataset("0", (2, 4), STRING), "expected numbers in this file"),
    "complex": (lambda f: f.create_dataset("0", (2, 4), "c8"), "expected numbers"),
    "soft link": (lambda f: f.__setitem__("0", h5py.SoftLink("/x")), "is a link"),
    "external link": (lambda f: f.__setitem__("0", h5py.ExternalLink("o.hdf5", "/0")), "is a link"),
    "virtual": (virtual, "expected numbers in this file"),
    "external": (
        lambda f: f.create_dataset("0", (2, 4), "f4", external=[("raw", 0, 32)]),
        "expected numbers in this file",
    ),
    "absurd shape": (lambda f: f.create_dataset("0", (1 << 24, 1 << 24), "f4"), "dataset 0: "),
    "zeros before": (lambda f: f.create_dataset("007", data=VECTORS), "found '007', expected"),
    "Arabic": (lambda f: f.create_dataset("٣", data=VECTORS), "found '٣', expected"),
    "weights": (lambda f: f.create_dataset("CNN/W", data=VECTORS), "found 'CNN', expected"),
    "not UTF-8": (with_attribute(np.bytes_(b"\xff b")), "dataset 0: "),
    "other words": (with_attribute("a b c"), "2 words by its shape, 3 by its attribute"),
}


@pytest.mark.parametrize("kind", ODD)
def test_files_other_than_embeddings_are_refused(tmp_path, kind):
    path, (make, message) = tmp_path / "odd.hdf5", ODD[kind]
    with h5py.File(path, "w") as file:
        make(file)
    with pytest.raises(DataError, match=rf"odd\.hdf5.*{message}"):
        list(read_embeddings(path))


def test_damaged_and_missing_embedding_files_are_named(tmp_path):
    path = tmp_path / "whole.hdf5"
    with h5py.File(path, "w") as file:
        for i in range(50):
            file.create_dataset(str(i), data=VECTORS, compression=9).attrs["sentence"] = "a b"
    content = path.read_bytes()
    for n_bytes in (0, 7, 500, len(content) // 2, len(content) - 1):
        (tmp_path / "bad.hdf5").write_bytes(content[:n_bytes])
        with pytest.raises(DataError, match=r"bad\.hdf5"):
            list(read_embeddings(tmp_path / "bad.hdf5"))
    for name in ("missing.hdf5", "."):
        with pytest.raises(DataError, match="not a complete HDF5 file"):
            list(read_embeddings(tmp_path / name))


def test_read_embeddings_of_bilm_tf_and_allennlp(tmp_path):
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        for i in range(11):
            file[str(i)] = np.full((3, 1, 2), i, np.float32)
        file["11"] = np.zeros((0, 2), np.float16)
        file["sentence_to_index"] = "{}"
    *found, last = read_embeddings(tmp_path / "other.hdf5")
    rows = [(number, words, vectors[0, 0, 0]) for number, words, vectors in found]
    assert rows == [(i, None, i) for i in range(11)]
    assert last[2].shape == (0, 2)


def test_read_embeddings_with_words_as_bytes(tmp_path):
    with h5py.File(tmp_path / "bytes.hdf5", "w") as file:
        file.create_dataset("0", data=VECTORS).attrs["sentence"] = np.bytes_("naïve café".encode())
    assert next(read_embeddings(tmp_path / "bytes.hdf5"))[1] == ["naïve", "café"]
