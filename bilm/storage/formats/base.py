"""The base class of the formats: everything that the rest of bilm reads from a model's files."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bilm.errors import OptionsError, WeightsError
from bilm.options.model_options import ModelOptions
from bilm.options.run_options import load_model_options
from bilm.storage.hdf5 import numbers, open_hdf5
from bilm.support.model_files import NGRAM_COUNTS, SOFTMAX_ENDING, VOCABULARY
from bilm.tensors import row_of


class LazyTensor(NamedTuple):
    """A tensor whose values are read when NumPy converts it to an array."""

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.read(), dtype)


class Tensors(dict[str, LazyTensor]):
    """The tensors in the files of a model, by the names of `bilm.tensors`; a name that is missing
    raises WeightsError.

    Args:
        source: name of the files, for messages.
        paths: the files that the values are read from.
    """

    def __init__(
        self, source: str | Path, paths: Iterable[Path], by_name: Mapping[str, LazyTensor]
    ):
        super().__init__(by_name)
        self.source = str(source)
        self.paths = tuple(path.absolute() for path in paths)

    def __missing__(self, name: str) -> LazyTensor:
        raise WeightsError(f"{self.source}: {name} is missing")

    def axis_lengths(self, name: str) -> dict[str | int, int]:
        """Return the length of each axis of a tensor, by the axes that `bilm.tensors` declares.
        Raises: WeightsError if it is missing, is empty or has another number of axes."""
        axes, shape = row_of(name).axes, self[name].shape
        if len(shape) != len(axes) or not all(shape):
            declared = ", ".join(map(str, axes))
            raise WeightsError(
                f"{self.source}: {name} has shape {shape}, expected lengths of ({declared})"
            )
        return dict(zip(axes, shape, strict=True))

    def only(self, is_selected: Callable[[str], bool]) -> "Tensors":
        """Return the tensors whose names `is_selected` selects."""
        selected = {name: tensor for name, tensor in self.items() if is_selected(name)}
        return Tensors(self.source, self.paths, selected)


class Softmax(NamedTuple):
    """The softmax of a stored model."""

    tensors: Tensors  # contain `softmax/W` and `softmax/b`
    n_words: int  # number of words that it predicts
    words: list[str] | None  # these words by id; None if a vocabulary file lists them


class Mix(NamedTuple):
    """A learned weighting of a biLM's layers: gamma * sum_j softmax(weights)_j * layer_j."""

    weights: np.ndarray  # float32 (layers + 1,), before the softmax
    gamma: float
    # Whether the layers are normalized first, over all positions of the batch including the marks
    # of sentences.
    do_layer_norm: bool = False


class Format(ABC):
    """The files of one stored model in one format.

    Args:
        options_file, weight_file: the two paths that identify the model.
    Attributes:
        vocabulary_path, softmax_path, ngrams_path: paths of the vocabulary, of the softmax of an
            export, and of the counts of the training text, whether they exist or not.
    """

    name: ClassVar[str]  # in messages, such as "ELMoForManyLangs"
    weight_names: ClassVar[tuple[str, ...]]  # patterns of its weight files, if a user names one
    trainable: ClassVar[bool] = True  # whether its models can be trained further
    has_softmax: ClassVar[bool] = True  # whether its models may have a softmax
    # The tokens that its models were trained on.
    expects: ClassVar[str] = "words tokenized like the training text, in their original case"
    needs_tensorflow: ClassVar[bool] = False  # whether TensorFlow reads its files

    def __init__(self, options_file: Path, weight_file: Path):
        self.options_file, self.weight_file = options_file.absolute(), weight_file.absolute()
        self.folder = self.options_file.parent
        self.vocabulary_path = self.folder / VOCABULARY
        self.softmax_path = self.weight_file.with_name(self.weight_file.stem + SOFTMAX_ENDING)
        self.ngrams_path = self.softmax_path

    def __getstate__(self) -> dict[str, Any]:
        """Return the paths for pickle, without the parts that were read."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Path)}

    @classmethod
    @abstractmethod
    def find(cls, paths: list[PurePath], where: str | Path) -> list[PurePath] | None:
        """Choose the files of a model in a folder or archive.

        Args:
            paths: relative to the folder or archive.
            where: the folder or archive, for messages.
        Returns: the two paths that identify the model, then its other files, which are in the
            folder of the first path or below and may be missing; None for another format.
        Raises: WeightsError if they contain several models, or part of one.
        """

    @classmethod
    def owns(cls, weight_file: Path) -> bool:
        """Return whether a weights path belongs to this format."""
        return any(map(weight_file.match, cls.weight_names))

    @property
    def description(self) -> str:
        """The format and, for a run, the checkpoint."""
        return self.name

    def files(self) -> list[Path]:
        """Return the files that the model is read from, without its softmax and vocabulary."""
        return [self.options_file, self.weight_file]

    def options(self) -> ModelOptions:
        """Read the options; if they omit the directions, infer these from the weights. Raises:
        OptionsError, DataError, WeightsError."""
        options = load_model_options(self.options_file)
        if options.bidirectional is not None:
            return options
        return options.replace(bidirectional=any("RNN_1/" in name for name in self.tensors))

    @property
    @abstractmethod
    def tensors(self) -> Tensors:
        """The weights of the biLM. Raises: WeightsError."""

    def softmax(self) -> Softmax | None:
        """Open the softmax; return None if the model has none. Raises: WeightsError."""
        return None

    def mixes(self) -> list[Mix]:
        """Return the learned weightings of the layers. Raises: OptionsError, WeightsError."""
        return []

    def ngram_counts(self) -> np.ndarray | None:
        """Read the counts of the training text (docs/formats.md); return None if they are not
        stored. Raises: WeightsError."""
        if not self.ngrams_path.is_file():
            return None
        with open_hdf5(self.ngrams_path) as file:
            return numbers(file, NGRAM_COUNTS)[...] if NGRAM_COUNTS in file else None

    def evaluation(self) -> Mapping[str, Any]:
        """Return the record of the model's last evaluation; empty if it is not stored."""
        return {}

    def use_softmax(self, path: Path) -> None:
        """Replace the file of the softmax. Raises: OptionsError if the format has no such file;
        WeightsError if it is missing."""
        raise OptionsError(
            f"{path}: {self.folder} is a model of format {self.name}, which has no softmax file; "
            "remove the argument softmax"
        )

    def checkpoint(self) -> Any:
        """Return the `Checkpoint` of a run, None for other models. Raises: WeightsError."""
        return None

    def fingerprint_files(self) -> list[Path]:
        """Return the files whose content identifies the model."""
        return self.files()


def folder_with(
    names: Iterable[str], paths: Iterable[PurePath], where: str | Path, kind: str
) -> PurePath | None:
    """Return the folder, at the top or one level below, that contains files of all these names; see
    `one_folder`."""
    available = set(paths)
    folders = {path.parent for path in available if len(path.parts) <= 2}
    whole = [folder for folder in folders if available.issuperset(folder / name for name in names)]
    return one_folder(whole, where, kind)


def one_folder(folders: Iterable[PurePath], where: str | Path, kind: str) -> PurePath | None:
    """Return the folder of a model: the top if it is one of them, or else the only one; None if
    there are none. Raises: WeightsError, with `where` and `kind`, if there are several."""
    candidates = sorted(set(folders))  # the top is the first
    if not candidates:
        return None
    if len(candidates) > 1 and candidates[0].parts:
        listed = ", ".join(folder.as_posix() for folder in candidates)
        raise WeightsError(
            f"{where}: found {kind} in {listed}; expected one: name the folder of one of them"
        )
    return candidates[0]


def json_files(paths: Iterable[PurePath], home: PurePath) -> list[PurePath]:
    """Return the JSON files in the folder `home` and below it."""
    return [path for path in paths if path.suffix == ".json" and path.is_relative_to(home)]


def paths_inside(folder: Path, path: str) -> list[Path]:
    """Return where in a folder the file of a path of another machine may be: below the folder, if
    the path is relative, and directly in the folder."""
    foreign = PureWindowsPath(path)  # splits at either kind of slash
    candidates = [folder / foreign.name] if foreign.name else []
    if foreign.name and not foreign.anchor and ".." not in foreign.parts:
        candidates.insert(0, folder / foreign.as_posix())
    return candidates
