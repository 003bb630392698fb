"""Files of embeddings: how words and ids are stored, and reading files of any origin."""

from __future__ import annotations

import math
import operator
import os
import re
import zipfile
from collections.abc import Iterator
from itertools import pairwise

import h5py
import numpy as np

from bilm.errors import DataError
from bilm.storage.hdf5 import DAMAGE
from bilm.support.files import expanded

SENTENCE = "sentence"  # attribute of a dataset: its words
ID = "id"  # attribute of a dataset: its id
PLACE = "number"  # attribute of a dataset named by an id: its position in the corpus
BY_ID = "by_id"  # attribute of a file whose datasets are named by ids
IDS = "ids"  # dataset, or array of NPZ, with the ids of all sentences
IDS_UTF8, IDS_OFFSETS = "ids_utf8", "ids_offsets"  # arrays of NPZ instead of IDS
NUMBER = re.compile("0|[1-9][0-9]{0,17}")
OF_ALLENNLP = "sentence_to_index"
MAX_RATIO = 100  # most bytes of values per stored byte; embeddings do not compress well


def read_embeddings(
    path: str | os.PathLike,
) -> Iterator[tuple[int, list[str] | None, np.ndarray]]:
    """Yield number, words and vectors of each sentence of an HDF5 file of embeddings, in order.

    Words are None for files of bilm-tf and AllenNLP, which do not contain them. Sentences with ids
    are numbered in the order of their corpus; `read_ids` returns the ids. The file is closed when
    the iterator ends or is deleted.

    Raises: DataError, naming the file and the dataset, if the file is missing, damaged, or contains
        anything except arrays of numbers, (T, D) or (layers, T, D), named 0, 1, 2, ... or by ids.
    """
    with _opened(path) as file:
        for number, name in _names(file, path):
            words, vectors = _read(file, path, name)
            yield number, words, vectors


def read_ids(path: str | os.PathLike) -> list[str]:
    """Return the ids of all sentences of an HDF5 or NPZ file of embeddings, in corpus order.

    Raises: DataError if the file is missing or damaged or does not contain ids.
    """
    try:
        if zipfile.is_zipfile(expanded(path)):
            return _ids_of_npz(expanded(path))
        with _opened(path) as file:
            if BY_ID in file.attrs:
                return [str(file[name].attrs[ID]) for _, name in _names(file, path)]
            if IDS not in file:
                raise DataError(f"{path}: does not contain ids")
            return file[IDS].asstr()[...].tolist()
    except DataError:
        raise
    except (*DAMAGE, zipfile.BadZipFile, EOFError, MemoryError) as error:
        raise DataError(f"{path}: damaged ({error})") from error


def _ids_of_npz(path: str) -> list[str]:
    with zipfile.ZipFile(path) as archive:

        def array(name: str) -> np.ndarray:
            with archive.open(f"{name}.npy") as file:
                return np.lib.format.read_array(file)

        names = archive.namelist()
        if f"{IDS}.npy" in names:
            return list(map(str, array(IDS)))
        if f"{IDS_UTF8}.npy" not in names:
            raise DataError(f"{path}: does not contain ids")
        text, offsets = array(IDS_UTF8).tobytes(), array(IDS_OFFSETS).tolist()
    return [text[start:stop].decode() for start, stop in pairwise(offsets)]


def join_words(words: list[str]) -> str:
    """Return words as one string, separated by spaces, or by tabs if a word contains a space."""
    separator = "\t" if any(" " in word for word in words) else " "
    return separator.join(words).replace("\0", "\u2400")  # an HDF5 string ends at NUL


def dataset_name(id_: str) -> str:
    """Return the dataset name for an id; HDF5 does not allow `/` or a lone `.` in names."""
    return "_" if id_ == "." else id_.replace("/", "_")


def _split(sentence: str, n_words: int) -> list[str]:
    if n_words < 2:
        return [sentence] * n_words
    return sentence.split("\t" if "\t" in sentence else " ")


def _opened(path: str | os.PathLike) -> h5py.File:
    try:
        return h5py.File(expanded(path), "r")
    except DAMAGE as error:
        raise DataError(f"{path}: not a complete HDF5 file of embeddings ({error})") from error


def _names(file: h5py.File, path: str | os.PathLike) -> list[tuple[int, str]]:
    """Return the number of each sentence and the name of its dataset, in order."""
    try:
        names = list(file)
        if BY_ID in file.attrs:
            return sorted((_place(file, name), name) for name in names)
    except DAMAGE as error:
        raise DataError(f"{path}: damaged ({error})") from error
    names = [name for name in names if name != OF_ALLENNLP]
    odd = [n for n in names if isinstance(n, bytes) or (n.isnumeric() and not NUMBER.fullmatch(n))]
    if odd:
        raise DataError(f"{path}: a dataset is named {odd[0][:40]!r}, expected 0, 1, 2, ...")
    numbers = sorted(int(name) for name in names if NUMBER.fullmatch(name))
    if names and not numbers:
        raise DataError(
            f"{path}: not embeddings: found {names[0][:40]!r}, expected datasets named 0, 1, 2, ..."
        )
    return [(number, str(number)) for number in numbers]


def _place(file: h5py.File, name: str) -> int:
    """Return the position of a dataset named by an id, without following links."""
    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise ValueError(f"{name!r} is a link, expected a dataset")
    return operator.index(file[name].attrs[PLACE])


def _read(
    file: h5py.File, path: str | os.PathLike, name: str
) -> tuple[list[str] | None, np.ndarray]:
    """Return the words and the vectors of a sentence."""
    try:
        if not isinstance(file.get(name, getlink=True), h5py.HardLink):
            raise DataError("found a link, expected a dataset")
        dataset = file[name]
        _check(dataset)
        sentence = _sentence(dataset)
        vectors = dataset[...]
    except DataError as error:
        raise DataError(f"{path}, dataset {name}: {error}") from None
    except (*DAMAGE, MemoryError) as error:
        raise DataError(f"{path}, dataset {name}: damaged ({error})") from error
    n_words = vectors.shape[-2]
    words = None if sentence is None else _split(sentence, n_words)
    if words is not None and len(words) != n_words:
        raise DataError(
            f"{path}, dataset {name}: {n_words} words by its shape, {len(words)} by its attribute "
            f"{SENTENCE!r}"
        )
    return words, vectors


def _check(dataset: h5py.Dataset) -> None:
    """Check that a dataset contains vectors, and that its declared size fits the file."""
    if not isinstance(dataset, h5py.Dataset):
        raise DataError("found a group, expected a dataset")
    if dataset.dtype.kind not in "fiu":
        raise DataError(f"found values of type {dataset.dtype}, expected numbers")
    if dataset.shape is None or dataset.ndim not in (2, 3):
        raise DataError(
            f"found shape {dataset.shape}, expected (words, dim) or (layers, words, dim)"
        )
    if dataset.is_virtual or dataset.external:
        raise DataError("found values in another file, expected them in this one")
    stored = dataset.id.get_storage_size()
    chunk = math.prod(dataset.chunks or ()) * dataset.dtype.itemsize  # HDF5 reads whole chunks
    if max(dataset.nbytes, chunk if dataset.size else 0) > MAX_RATIO * stored:
        raise DataError(f"found shape {dataset.shape}, but only {stored:,} bytes are stored")


def _sentence(dataset: h5py.Dataset) -> str | None:
    """Return the attribute with the words; None if it is missing."""
    if SENTENCE not in dataset.attrs:
        return None
    attribute = dataset.attrs.get_id(SENTENCE)
    text = h5py.check_string_dtype(attribute.dtype)
    longest = os.path.getsize(dataset.file.filename)
    if text is None or attribute.shape != () or (text.length or 0) > longest:
        raise DataError(f"the attribute {SENTENCE!r} is not a string")
    value = dataset.attrs[SENTENCE]
    value = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"the attribute {SENTENCE!r} is not UTF-8 ({error.reason})") from error
