"""The base class of the formats: everything that the rest of bilm reads from a model's files."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from fnmatch import fnmatch
from pathlib import Path, PurePath
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from bilm.errors import DataError, OptionsError
from bilm.options.model_options import ModelOptions
from bilm.storage.hdf5 import Held
from bilm.support.files import keep_inputs, output_path

OPTIONS, VOCABULARY = "options.json", "vocab.txt"
CARD, META = "README.md", "meta.json"
# Names of the files of a model, in all formats: an output replaces none of them.
OPTIONS_NAMES = (OPTIONS, f"*_{OPTIONS}", "config.json", "checkpoint")
WEIGHTS_NAMES = (
    "model.ckpt-*", "*weights*.hdf5", "*_softmax.hdf5", "weights.th", "encoder.pkl",
    "token_embedder.pkl",
)  # fmt: skip
OTHER_NAMES = (VOCABULARY, "heldout.json", "history.csv", "char.dic", "word.dic")


class Tensors(Protocol):
    """The tensors in the files of a model.

    Attributes:
        source: names the files in messages.
        paths: the files that the values are read from.
        names: the tensors' names, each one of `bilm.storage.names.other_names`.
    """

    source: str
    paths: tuple[Path, ...]
    names: set[str]

    def held(self) -> Held:
        """Count the datasets and numbers that the files contain, regardless of the sizes that
        they declare."""

    def opened(self) -> AbstractContextManager[Callable[[str], Any]]:
        """Open the files; yield a function from a name to an object with a shape that NumPy can
        convert to an array."""


class LazyTensor(NamedTuple):
    """A tensor whose values are read when NumPy converts it to an array."""

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.read(), dtype)


class Softmax(NamedTuple):
    """The softmax of a stored model.

    Fields:
        tensors: contain `softmax/W` and `softmax/b`.
        n_words: number of words that it predicts.
        words: these words by id; None if a vocabulary file lists them.
    """

    tensors: Tensors
    n_words: int
    words: list[str] | None

    def value(self, name: str) -> np.ndarray:
        """Return the value of `softmax/W` or `softmax/b`. Raises: WeightsError."""
        with self.tensors.opened() as read:
            return np.asarray(read(name))


class Checkpoint(Protocol):
    """The part of `bilm.storage.checkpoint.Checkpoint` that model readers use, without TensorFlow.

    Attributes:
        path: its path, without the endings of its files.
        files: the index and the data files.
        is_reference: whether the TensorFlow 1 reference wrote it.
        n_words: number of words that its softmax predicts.
        shapes, dtypes: shape and dtype of each weight, by name.
        held: number of its tensors, and of numbers in them.
    """

    path: str
    files: tuple[Path, ...]
    is_reference: bool
    n_words: int
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype]
    held: Held

    @property
    def state(self) -> list[np.ndarray]:
        """LSTM states of the rows at the end of training. Raises: WeightsError if missing."""

    def read(self, name: str) -> np.ndarray:
        """Return a weight. Raises: WeightsError if it is missing or damaged."""


class Format(ABC):
    """The files of one stored model in one format.

    Args:
        options_file, weight_file: the two paths that identify the model.

    Class attributes:
        name: the format's name in messages, such as "an ELMoForManyLangs model".
        trainable: whether models of this format can be trained further; they may have a softmax.
        expects: the kind of tokens that its models were trained on.
        copies: names, or name patterns, of the cached copies of the two paths.
    """

    name: ClassVar[str]
    trainable: ClassVar[bool]
    expects: ClassVar[str]
    copies: ClassVar[tuple[str, str]]

    def __init__(self, options_file: Path, weight_file: Path):
        self.options_file, self.weight_file = options_file.absolute(), weight_file.absolute()

    @classmethod
    @abstractmethod
    def find(cls, paths: list[PurePath], where: Path) -> dict[str, PurePath] | None:
        """Choose the files of a model in a folder or archive.

        Args:
            paths: relative to the folder or archive.
            where: the folder or archive, for messages.
        Returns: dict from the names of cached copies to the paths, the two of `copies` first; None
            if
            the files are of another format.
        Raises: WeightsError if they contain several models, or part of one.
        """

    @classmethod
    @abstractmethod
    def owns(cls, weight_file: Path) -> bool:
        """Return whether a weights path belongs to this format."""

    @classmethod
    def found(cls, options_file: Path, weight_file: Path) -> Format:
        """Return the model whose first two files `find` has chosen."""
        return cls(options_file, weight_file)

    @property
    def folder(self) -> Path:
        """The folder that contains the options."""
        return self.options_file.parent

    @property
    @abstractmethod
    def description(self) -> str:
        """The format and, for a run, the checkpoint."""

    @abstractmethod
    def files(self) -> list[Path]:
        """Return the files that the model is read from, without its softmax and vocabulary."""

    @abstractmethod
    def options(self) -> ModelOptions:
        """Read the options; if they omit the directions, infer these from the weights.

        Raises: OptionsError, DataError, WeightsError.
        """

    @abstractmethod
    def tensors(self, options: ModelOptions) -> Tensors:
        """Open the weights of the biLM. Raises: OptionsError, WeightsError."""

    @abstractmethod
    def softmax(self) -> Softmax | None:
        """Open the softmax; return None if the model has none. Raises: WeightsError."""

    @abstractmethod
    def stored_types(self, options: ModelOptions) -> set[str]:
        """Return the names of the types that the numbers are stored as. Raises: WeightsError."""

    @property
    def softmax_path(self) -> Path:
        """The path of the softmax, whether it exists or not."""
        return self.weight_file.with_name(f"{self.weight_file.stem}_softmax.hdf5")

    def use_softmax(self, path: Path) -> None:
        """Replace the file of the softmax. Raises: OptionsError if the format has no such file."""
        raise OptionsError(
            f"{path}: {self.folder} is a model of format {self.name}, which has no softmax file; "
            "remove the argument softmax"
        )

    def checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint of a run, None for other models. Raises: WeightsError."""
        return None

    def fingerprint_files(self) -> list[Path]:
        """Return the files whose content identifies the model."""
        return self.files()

    def own_files(self) -> list[Path]:
        """Return all files of the model and beside it that an output must not replace."""
        return [*self.files(), self.folder / VOCABULARY]


def types_of(tensors: Tensors) -> set[str]:
    """Return the names of the types of tensors. Raises: WeightsError."""
    with tensors.opened() as read:
        return {read(name).dtype.name for name in tensors.names}


def protect(output: str | os.PathLike, *inputs: str | os.PathLike | None) -> None:
    """Check that an output does not replace an input, or a file of a run or other stored model.

    Raises: DataError if it does.
    """
    keep_inputs(output, *inputs)
    target = output_path(output)
    if target.is_file() and _is_of_model(target):
        raise DataError(
            f"{output}: is a file of the model in {target.parent}; choose another name, or remove "
            "the file first"
        )


def _is_of_model(file: Path) -> bool:
    """Return whether a file has a name of a model's file and is beside options and weights."""
    beside = [entry.name for entry in file.parent.iterdir()]
    has_options, has_weights = (
        any(_matches(name, patterns) for name in beside)
        for patterns in (OPTIONS_NAMES, WEIGHTS_NAMES)
    )
    patterns = (*OPTIONS_NAMES, *WEIGHTS_NAMES, *OTHER_NAMES)
    return has_options and has_weights and _matches(file.name, patterns)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
