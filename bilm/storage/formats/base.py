"""The base class of the formats: everything that the rest of bilm reads from a model's files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from bilm.errors import OptionsError, WeightsError
from bilm.options.model_options import ModelOptions
from bilm.storage.run_record import RunRecord
from bilm.support.model_files import CONFIG, SOFTMAX_ENDING, VOCABULARY

MAX_JSON_FILES, MAX_JSON_DEPTH = 50, 4
WORDS_AS_TRAINED = "words tokenized like the training text, in their original case"


class Tensors(Protocol):
    """The tensors in the files of a model.

    Attributes:
        source: name of the files, for messages.
        paths: the files that the values are read from.
        names: the tensors' names, as in the table `HDF5` of `bilm.storage.names`.
    """

    source: str
    paths: tuple[Path, ...]
    names: set[str]

    def opened(self) -> AbstractContextManager[Callable[[str], Any]]:
        """Open the files; yield a function from a name to an object with a shape and a dtype that
        NumPy can convert to an array."""


class LazyTensor(NamedTuple):
    """A tensor whose values are read when NumPy converts it to an array."""

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.read(), dtype)


class LazyTensors:
    """`Tensors` of files that are opened when a value is read.

    Args:
        source, paths: see `Tensors`.
        by_name: the tensors by name.
    """

    def __init__(self, source: str, paths: Iterable[Path], by_name: Mapping[str, LazyTensor]):
        self.source = source
        self.paths = tuple(path.absolute() for path in paths)
        self.names = set(by_name)
        self._by_name = by_name

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor, by name."""
        return {name: tensor.shape for name, tensor in self._by_name.items()}

    @contextmanager
    def opened(self) -> Iterator[Callable[[str], LazyTensor]]:
        """Yield the function that returns a tensor."""
        yield self._by_name.__getitem__


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


class Mix(NamedTuple):
    """A learned weighting of a biLM's layers: gamma * sum_j softmax(weights)_j * layer_j.

    Fields:
        weights: float32 (layers + 1,), before the softmax.
        gamma: the factor.
        do_layer_norm: whether the layers are normalized first, over all positions of the batch
            including the marks of sentences.
    """

    weights: np.ndarray
    gamma: float
    do_layer_norm: bool = False


class Checkpoint(Protocol):
    """What readers of models, without TensorFlow, use of `bilm.storage.checkpoint.Checkpoint`."""

    path: str
    files: tuple[Path, ...]
    skipped: list[str]
    is_reference: bool
    n_words: int
    tensors: LazyTensors

    @property
    def record(self) -> RunRecord:
        """The content of the JSON file."""

    @property
    def state(self) -> list[np.ndarray]:
        """The LSTM states."""


class Format(ABC):
    """The files of one stored model in one format.

    Args:
        options_file, weight_file: the two paths that identify the model.
    Class attributes:
        name: the format's name in messages, such as "ELMoForManyLangs".
        trainable: whether models of this format can be trained further.
        has_softmax: whether models of this format may have a softmax.
        expects: the kind of tokens that its models were trained on.
        needs_tensorflow: whether TensorFlow reads its files.
        identified_by: names of the two paths in the result of `find`.
    Attributes:
        softmax_path: path of the softmax of an export, whether it exists or not.
    """

    name: ClassVar[str]
    trainable: ClassVar[bool] = True
    has_softmax: ClassVar[bool] = True
    expects: ClassVar[str] = WORDS_AS_TRAINED
    needs_tensorflow: ClassVar[bool] = False
    identified_by: ClassVar[tuple[str, str]]

    def __init__(self, options_file: Path, weight_file: Path):
        self.options_file, self.weight_file = options_file.absolute(), weight_file.absolute()
        self.folder = self.options_file.parent
        self.softmax_path = self.weight_file.with_name(self.weight_file.stem + SOFTMAX_ENDING)

    def __getstate__(self) -> dict[str, Any]:
        """Return the paths for pickle, without the parts that were read."""
        paths = "options_file", "weight_file", "folder", "softmax_path"
        return {name: getattr(self, name) for name in paths}

    @classmethod
    @abstractmethod
    def find(cls, paths: list[PurePath], where: str | Path) -> dict[str, PurePath] | None:
        """Choose the files of a model in a folder or archive.

        Args:
            paths: relative to the folder or archive.
            where: the folder or archive, for messages.
        Returns: dict from the name that each file has in the cache to its path; None if the files
            are of another format.
        Raises: WeightsError if they contain several models, or part of one.
        """

    @classmethod
    @abstractmethod
    def owns(cls, weight_file: Path) -> bool:
        """Return whether a weights path belongs to this format."""

    @classmethod
    def of_files(cls, files: Mapping[str, Path]) -> Format:
        """Return the model whose files `find` has chosen; their names are those in the cache."""
        options_file, weight_file = (files[name] for name in cls.identified_by)
        return cls(options_file, weight_file)

    @property
    def description(self) -> str:
        """The format and, for a run, the checkpoint."""
        return self.name

    def files(self) -> list[Path]:
        """Return the files that the model is read from, without its softmax and vocabulary."""
        return [self.options_file, self.weight_file]

    @abstractmethod
    def options(self) -> ModelOptions:
        """Read the options; if they omit the directions, infer these from the weights.

        Raises: OptionsError, DataError, WeightsError.
        """

    @abstractmethod
    def tensors(self, options: ModelOptions) -> Tensors:
        """Open the weights of the biLM. Raises: OptionsError, WeightsError."""

    def softmax(self) -> Softmax | None:
        """Open the softmax; return None if the model has none. Raises: WeightsError."""
        return None

    def mixes(self) -> list[Mix]:
        """Return the learned weightings of the layers. Raises: OptionsError, WeightsError."""
        return []

    def use_softmax(self, path: Path) -> None:
        """Replace the file of the softmax.

        Raises: OptionsError if the format has no such file; WeightsError if it is missing.
        """
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
        """Return the files of the model, and other files beside it, that an output must not
        replace."""
        return [*self.files(), self.folder / VOCABULARY, self.softmax_path]


def one_folder(folders: Iterable[PurePath], where: str | Path, kind: str) -> PurePath | None:
    """Choose the folder of a model: the top if it is one of them, or else the only one.

    Args:
        folders: relative to `where`, as for `Format.find`.
        kind: the models in them, for the message.
    Returns: None if there are no folders.
    Raises: WeightsError if there are several.
    """
    candidates = sorted(set(folders))  # the top is the first
    if not candidates:
        return None
    if len(candidates) > 1 and candidates[0].parts:
        listed = ", ".join(folder.as_posix() for folder in candidates)
        raise WeightsError(
            f"{where}: found {kind} in {listed}; expected one: name the folder of one of them"
        )
    return candidates[0]


def json_files(paths: Iterable[PurePath], home: PurePath) -> dict[str, PurePath]:
    """Return the JSON files of a model among the paths of a folder or archive, by their names in
    the cache: `config.json` first, then those at few levels below `home`."""
    below = [p.relative_to(home) for p in paths if p.is_relative_to(home)]
    inside = [p for p in below if p.suffix == ".json" and len(p.parts) <= MAX_JSON_DEPTH]
    inside.sort(key=lambda p: (p.as_posix() != CONFIG, len(p.parts)))
    return {p.as_posix(): home / p for p in inside[:MAX_JSON_FILES]}


def paths_inside(folder: Path, path: str) -> list[Path]:
    """Return where in a folder the file of a path of another machine may be: below the folder, if
    the path is relative, and directly in the folder."""
    foreign = PureWindowsPath(path)  # splits at either kind of slash
    candidates: list[Path] = []
    if not foreign.name:
        return candidates
    if not foreign.anchor and ".." not in foreign.parts:
        candidates.append(folder / foreign.as_posix())
    candidates.append(folder / foreign.name)
    return candidates
