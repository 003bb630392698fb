"""Files of embeddings: storing words beside their vectors, and reading files of any origin."""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Iterator

import h5py
import numpy as np

from bilm.errors import DataError
from bilm.files import expanded
from bilm.storage.hdf5 import DAMAGE

SENTENCE = "sentence"  # the attribute with the words
ID = "id"  # the attribute with the id, where sentences have one
PLACE = "number"  # the attribute with its place in the corpus, where it is named by its id
BY_ID = "by_id"  # the attribute of a file whose datasets are named by ids
NUMBER = re.compile("0|[1-9][0-9]{0,17}")
OF_ALLENNLP = "sentence_to_index"
MAX_RATIO = 100  # of uncompressed to stored bytes; embeddings hardly shrink


def read_embeddings(
    path: str | os.PathLike,
) -> Iterator[tuple[int, list[str] | None, np.ndarray]]:
    """Yield number, words and vectors of each sentence of a file of embeddings, in order.

    For files of bilm-tf and AllenNLP, which hold no words, the words are None. Sentences with ids
    are numbered in the order of their corpus. The file is closed when the iterator ends or is
    dropped.

    Raises: DataError, naming the file and the dataset, if the file is missing, damaged, or holds
        anything but arrays of numbers, (T, D) or (layers, T, D), named 0, 1, 2, ... or by ids.
    """
    with _opened(path) as file:
        for number, name in _names(file, path):
            words, vectors = _read(file, path, name)
            yield number, words, vectors


def join_words(words: list[str]) -> str:
    """Return words as one string, separated by tabs if one has a space, as in CoNLL-U."""
    separator = "\t" if any(" " in word for word in words) else " "
    return separator.join(words).replace("\0", "\u2400")  # an HDF5 string ends at NUL


def dataset_name(id_: str) -> str:
    """Return the name of the dataset of a sentence with an id: HDF5 has / for its folders."""
    return "_" if id_ == "." else id_.replace("/", "_").replace("\0", "\u2400")


def _split(sentence: str, n_words: int) -> list[str]:
    if n_words < 2:
        return [sentence] * n_words
    return sentence.split("\t" if "\t" in sentence else " ")


def _opened(path: str | os.PathLike) -> h5py.File:
    try:
        return h5py.File(expanded(path), "r")
    except DAMAGE as error:
        raise DataError(f"{path}: not a whole HDF5 file of embeddings ({error})") from error


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
            f"{path}: no embeddings; found {names[0][:40]!r}, expected datasets named 0, 1, 2, ..."
        )
    return [(number, str(number)) for number in numbers]


def _place(file: h5py.File, name: str) -> int:
    """Return the place of a dataset that is named by an id, without following links."""
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
    """Check that a dataset holds vectors and declares no more than the file can hold."""
    if not isinstance(dataset, h5py.Dataset):
        raise DataError("found a group, expected a dataset")
    if dataset.dtype.kind not in "fiu":
        raise DataError(f"found values of type {dataset.dtype}, expected numbers")
    if dataset.shape is None or dataset.ndim not in (2, 3):
        raise DataError(
            f"found shape {dataset.shape}, expected (words, dim) or (layers, words, dim)"
        )
    if dataset.is_virtual or dataset.external:
        raise DataError("its values are in another file")
    stored = dataset.id.get_storage_size()
    chunk = math.prod(dataset.chunks or ()) * dataset.dtype.itemsize  # read as a whole
    if max(dataset.nbytes, chunk if dataset.size else 0) > MAX_RATIO * stored:
        raise DataError(f"found shape {dataset.shape}, but only {stored:,} bytes are stored")


def _sentence(dataset: h5py.Dataset) -> str | None:
    """Return the attribute with the words, or None if there is none."""
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
