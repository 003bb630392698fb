"""Files of embeddings: how words and ids are stored, and reading files of any origin."""

import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import h5py
import numpy as np

from bilm.errors import DataError
from bilm.storage.hdf5 import DAMAGE, to_read
from bilm.support.files import expanded

SENTENCE = "sentence"  # attribute of a dataset: its words
ID = "id"  # attribute of a dataset: its id
PLACE = "number"  # attribute of a dataset named by an id: its position in the corpus
BY_ID = "by_id"  # attribute of a file whose datasets are named by ids
POOLED = "pooled"  # attribute of a file with one vector per sentence and layer
IDS = "ids"  # array of NPZ with the ids of all sentences
NUMBER = re.compile("0|[1-9][0-9]{0,17}")
OF_ALLENNLP = "sentence_to_index"


def read_embeddings(
    path: str | os.PathLike,
) -> Iterator[tuple[int, list[str] | None, np.ndarray]]:
    """Yield number, words and vectors of each sentence of an HDF5 file of embeddings, in order.

    Words are None for files of bilm-tf and AllenNLP, which do not contain them. Sentences with ids
    are numbered in the order of their corpus; `read_ids` returns the ids.
    Raises: DataError, naming the file and the dataset, if the file is missing, damaged, or contains
        anything except arrays of numbers, (T, D) or (layers, T, D), or (D,) or (layers, D) if
        pooled, named 0, 1, 2, ... or by ids.
    """
    with _opened(path) as file:
        with _naming(path):
            names = _names(file)
        for number, name in names:
            with _naming(f"{path}, dataset {name[:40]}"):
                words, vectors = _read(file, name)
            yield number, words, vectors


def read_ids(path: str | os.PathLike) -> list[str]:
    """Return the ids of all sentences of an HDF5 or NPZ file of embeddings, in corpus order.
    Raises: DataError if the file is missing or damaged or does not contain ids."""
    if zipfile.is_zipfile(expanded(path)):
        with _naming(path), zipfile.ZipFile(expanded(path)) as archive:
            if f"{IDS}.npy" in archive.namelist():
                with archive.open(f"{IDS}.npy") as file:
                    return np.lib.format.read_array(file).tolist()
    else:
        with _opened(path) as file, _naming(path):
            if BY_ID in file.attrs:
                return [str(file[name].attrs[ID]) for _, name in _names(file)]
    raise DataError(f"{path}: does not contain ids")


def join_words(words: list[str]) -> str:
    """Return words as one string, separated by spaces, or by tabs if a word contains a space."""
    separator = "\t" if any(" " in word for word in words) else " "
    return separator.join(words).replace("\0", "\u2400")  # an HDF5 string ends at NUL


def refuse_tabs(words: Sequence[str], where: str) -> None:
    """Raise DataError if a word contains a tab, which separates words in files of embeddings."""
    for word in words:
        if "\t" in word:
            raise DataError(
                f"{where}: the word {word[:40]!r} contains a tab; expected words without tabs"
            )


@contextmanager
def _naming(where: str | os.PathLike) -> Iterator[None]:
    try:
        yield
    except (*DAMAGE, MemoryError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{where}: {error}") from error


def _opened(path: str | os.PathLike) -> h5py.File:
    with _naming(f"{path}: not a complete HDF5 file of embeddings"):
        return to_read(expanded(path))


def _names(file: h5py.File) -> list[tuple[int, str]]:
    """Return the number of each sentence and the name of its dataset, in order."""
    names = [str(name) for name in file if name != OF_ALLENNLP or BY_ID in file.attrs]
    if BY_ID in file.attrs:
        return sorted((int(_dataset(file, name).attrs[PLACE]), name) for name in names)
    odd = [name for name in names if not NUMBER.fullmatch(name)]
    if odd:
        raise DataError(f"found {odd[0][:40]!r}, expected datasets named 0, 1, 2, ...")
    return sorted((int(name), name) for name in names)


def _dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """Return a dataset without following links, which may lead to other files."""
    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise DataError(f"{name!r} is a link, expected a dataset")
    return file[name]


def _read(file: h5py.File, name: str) -> tuple[list[str] | None, np.ndarray]:
    dataset = _dataset(file, name)
    is_pooled = POOLED in file.attrs
    if not isinstance(dataset, h5py.Dataset) or dataset.ndim + is_pooled not in (2, 3):
        raise DataError(f"found {dataset}, expected an array (words, dim) or (layers, words, dim)")
    if dataset.dtype.kind not in "fiu" or dataset.is_virtual or dataset.external:
        raise DataError(f"found {dataset}, expected numbers in this file")
    vectors = dataset[...]
    if SENTENCE not in dataset.attrs:
        return None, vectors
    value = dataset.attrs[SENTENCE]
    text = value.decode() if isinstance(value, bytes) else str(value)
    n_words = bool(text) + text.count(" ") if is_pooled else vectors.shape[-2]
    words = text.split("\t" if "\t" in text else " ") if n_words > 1 else [text] * n_words
    if len(words) != n_words and not is_pooled:
        raise DataError(f"{n_words} words by its shape, {len(words)} by its attribute {SENTENCE!r}")
    return words, vectors
