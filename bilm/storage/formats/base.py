"""`StoredModel`: a run, an export or another stored biLM. Each format of files is a subclass."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePath, PureWindowsPath
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from bilm.data.marks import BOS, EOS, MARKS
from bilm.data.profile import Profile
from bilm.data.vocabulary import Vocabulary, vocabulary_of
from bilm.errors import DataError, OptionsError, WeightsError
from bilm.options.model_options import PROFILE, ModelOptions
from bilm.options.run_options import load_model_options
from bilm.storage.hdf5 import numbers, open_hdf5
from bilm.storage.stored_tensors import Mix, Softmax, Tensors, hdf5_tensors
from bilm.storage.stored_weights import StoredWeights
from bilm.support.files import expanded, sha256_of
from bilm.support.model_files import NGRAM_COUNTS, SOFTMAX_ENDING, VOCABULARY
from bilm.support.urls import masked
from bilm.tensors import is_bilm

if TYPE_CHECKING:
    from bilm.language_model import BiLM
    from bilm.storage.checkpoint import Checkpoint

Identity: TypeAlias = tuple[PurePath, PurePath]  # the two paths that identify a model
SCORING = "score sentences or replace words"  # what requires a softmax, for messages


class StoredModel(ABC):
    """A stored model, in one format. Each part is read once, when it is first needed; reading
    raises OptionsError, WeightsError or DataError.

    Args:
        options_file, weight_file: the two paths that identify the model.
    Attributes:
        folder: the folder that contains the options.
        vocabulary_path, softmax_path, ngrams_path: paths of the vocabulary, of the softmax of an
            export, and of the counts of the training text, whether they exist or not.
        arguments: what the user named: a model, or options and weights.
    """

    format: ClassVar[str]  # its name in messages, such as "ELMoForManyLangs"
    weight_names: ClassVar[tuple[str, ...]]  # patterns of its weight files, if a user names one
    required: ClassVar[tuple[str, ...]] = ()  # files of a model; the first two identify it
    # Patterns of its other files, relative to its folder; `{stem}` is the stem of the weights, and
    # `*` also matches slashes.
    companions: ClassVar[tuple[str, ...]] = ()
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
        self.arguments = [str(options_file), str(weight_file)]

    def __str__(self) -> str:
        return " ".join(map(masked, self.arguments))

    def __repr__(self) -> str:
        return f"StoredModel({str(self)!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Return the paths and arguments for pickle, without the parts that were read."""
        return {name: value for name, value in vars(self).items() if not hasattr(type(self), name)}

    @classmethod
    def find(cls, paths: list[PurePath], where: str | Path) -> Identity | None:
        """Choose the two paths that identify a model among the `paths` in the folder or archive
        `where`; None for another format. By default, a model is in the folder, at the top or one
        level below, that contains all `required` files. Raises: WeightsError if there are several
        models, or part of one."""
        available = set(paths)
        homes = []
        for folder in names_by_folder(paths):
            if available.issuperset(folder / name for name in cls.required):
                homes.append(folder)
        home = one_folder(homes, where, f"models of the format {cls.format}")
        if home is None:
            return None
        options, weights, *_ = cls.required
        return home / options, home / weights

    @classmethod
    def owns(cls, weight_file: Path) -> bool:
        """Return whether a weights path belongs to this format."""
        return any(map(weight_file.match, cls.weight_names))

    @property
    def description(self) -> str:
        """The format and, for a run, the checkpoint."""
        return self.format

    def files(self) -> list[Path]:
        """Return the files that the model is read from, without its softmax and vocabulary."""
        return [self.options_file, self.weight_file]

    def fingerprint_files(self) -> list[Path]:
        """Return the files whose content identifies the model."""
        return self.files()

    @property
    def own_files(self) -> list[Path]:
        """The files of the model and known files beside them, which no output must replace."""
        return [*self.files(), self.vocabulary_path, self.softmax_path, self.ngrams_path]

    @cached_property
    def options(self) -> ModelOptions:
        """The options."""
        return self.read_options()

    def read_options(self) -> ModelOptions:
        """Read the options; if they omit the directions, the weights decide."""
        options = load_model_options(self.options_file)
        if options.bidirectional is None:
            options = options.replace(bidirectional=any("RNN_1/" in name for name in self.tensors))
        return options

    @property
    @abstractmethod
    def tensors(self) -> Tensors:
        """The weights of the biLM."""

    @cached_property
    def softmax(self) -> Softmax | None:
        """The softmax, or None if the model has none."""
        return None

    @cached_property
    def mixes(self) -> list[Mix]:
        """The learned weightings of the layers that the files contain; empty for most formats."""
        return []

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint of a run, None for other models."""
        return None

    def ngram_counts(self) -> np.ndarray | None:
        """Read the counts of the training text (docs/formats.md), None without them."""
        if not self.ngrams_path.is_file():
            return None
        with open_hdf5(self.ngrams_path) as file:
            return numbers(file, NGRAM_COUNTS)[...] if NGRAM_COUNTS in file else None

    def evaluation(self) -> Mapping[str, Any]:
        """Return the record of the model's last evaluation; empty if it is not stored."""
        return {}

    def use_softmax(self, path: Path) -> None:
        """Replace the file of the softmax. Raises: OptionsError for other formats; WeightsError."""
        raise OptionsError(
            f"{path}: {self.folder} is a model of format {self.format}, which has no softmax file; "
            "remove the argument softmax"
        )

    @cached_property
    def n_words(self) -> int | None:
        """The number of words of the softmax, or else of the word table; None without both."""
        if self.softmax is not None:
            return self.softmax.n_words
        return self.tensors.n_words if self.options.reads_words else None

    @cached_property
    def profile(self) -> Profile | None:
        """The profile of the training text; None if it is not stored."""
        return Profile.from_record(self.options.other.get(PROFILE))

    @cached_property
    def digest(self) -> str:
        """The identity of the model: a SHA-256 of the content of its files."""
        return self.digest_with()

    def digest_with(self, *others: Path) -> str:
        """Return a SHA-256 of the content of the model's files and of other files."""
        try:
            digests = "".join(map(sha256_of, [*self.fingerprint_files(), *others]))
        except FileNotFoundError as error:
            raise _changed(error.filename) from error
        return hashlib.sha256(digests.encode()).hexdigest()

    @cached_property
    def weights_digest(self) -> str:
        """A SHA-256 of the weights with the softmax: the same for a run and its export."""
        digest = hashlib.sha256()
        for _, value in self.weights(has_softmax=True).values():
            digest.update(np.ascontiguousarray(value).data)
        return digest.hexdigest()

    def check_unchanged(self) -> None:
        """Raise WeightsError if the files have changed since `digest` was computed."""
        if self.digest_with() != self.digest:
            raise _changed(self)

    def require_softmax(self, purpose: str = SCORING) -> Softmax:
        """Return the softmax. Raises: OptionsError for a format without a softmax; WeightsError if
        it is missing: the model cannot `purpose`."""
        if not self.has_softmax:
            raise self._without_softmax(purpose)
        if self.softmax is None:
            raise WeightsError(
                f"{self}: the model has no softmax and cannot {purpose}; expected "
                f"{self.softmax_path}, which bilm export --include_softmax writes"
            )
        return self.softmax

    def require_trainable(self, purpose: str) -> None:
        """Raise OptionsError if models of this format cannot be trained further."""
        if not self.trainable:
            raise self._without_softmax(purpose)

    def _without_softmax(self, purpose: str) -> OptionsError:
        return OptionsError(
            f"{self}: files of {self.format} models do not contain a softmax; this model "
            f"computes vectors, but cannot {purpose}"
        )

    def require_run(self) -> Checkpoint:
        """Return the checkpoint of a run. Raises: WeightsError for a model that is not a run."""
        if self.checkpoint is None:
            raise WeightsError(
                f"{self}: found {self.weight_file.name}, but no checkpoint; expected a run"
            )
        return self.checkpoint

    def weights(
        self,
        token_ids: bool = False,
        token_table: str | Path | None = None,
        has_softmax: bool = False,
    ) -> StoredWeights:
        """Return the stored weights of a biLM for inference, whose values are read later.

        Args:
            token_ids: whether the biLM reads token ids even if the stored model reads characters.
            token_table: result of `dump_token_embeddings`; None for the model's own word table.
            has_softmax: whether the biLM has its softmax.
        """
        options, n_words = self.options, None
        sources = [self.tensors.only(is_bilm)]
        if options.reads_words or token_ids:
            table = self.tensors
            if token_table is not None:
                table = hdf5_tensors(os.path.expanduser(token_table))
            elif options.lexicon_encoder is not None:
                raise OptionsError(
                    f"{self}: the model reads characters and words of lexicons; to read token ids, "
                    "give the embedding_weight_file that dump_token_embeddings writes"
                )
            options = options.replace(char_cnn=None, lexicon_encoder=None)
            n_words = table.n_words
            sources = [
                table.only(lambda name: name == "embedding"),
                self.tensors.only(lambda name: name.startswith("RNN_")),
            ]
        if has_softmax:
            softmax = self.require_softmax()
            n_words = softmax.n_words
            sources.append(softmax.tensors.only(lambda name: not is_bilm(name)))
        return StoredWeights(options, n_words, sources, has_softmax)

    def build(self, token_ids: bool = False, token_table: str | Path | None = None) -> BiLM:
        """Build a biLM with padding, for ids of batchers; for the arguments, see `weights`."""
        return self.weights(token_ids, token_table).build(padding=True)

    def assign(self, model: BiLM, softmax: bool = True, stacks: bool = True) -> None:
        """Set the variables of a built model; `softmax`, `stacks`: whether to set these too."""
        variables = model.stored_variables()
        for name, value in self.weights(has_softmax=softmax).values(model.padding):
            if stacks or not name.startswith("RNN_"):
                variables[name].assign(value)

    def vocabulary_file(self, vocab_file: str | Path | None = None) -> Path | None:
        """Return the absolute path of the vocabulary of a model that reads words: the given file,
        or the one beside the options; None without either and for other models."""
        if not self.options.reads_words:
            return None
        if vocab_file:
            return Path(expanded(vocab_file)).absolute()
        return self.vocabulary_path if self.vocabulary_path.is_file() else None

    def check_words(self, vocab_file: str | Path | None) -> None:
        """Raise DataError if the vocabulary file of a model that reads words has other words than
        the model, as far as these are known."""
        if vocab_file is not None and self.options.reads_words:
            self._read_words(vocab_file, self.tensors.n_words, (BOS, EOS))

    def vocabulary(self, vocab_file: str | Path | None = None) -> Vocabulary:
        """Return the words of the softmax or word table, as stored with the softmax or else beside
        the options. Raises: DataError if the file is missing, or if `vocab_file` has others."""
        stored = self._words_of_softmax
        if vocab_file is None and stored is not None:
            return stored
        return self._read_words(vocab_file or self.vocabulary_path, self.n_words)

    @cached_property
    def _words_of_softmax(self) -> Vocabulary | None:
        if self.softmax is None or self.softmax.words is None:
            return None
        words, source = self.softmax.words, self.softmax.tensors.paths[0]
        return vocabulary_of(source, self.options, len(words), (), words)

    def _read_words(
        self, file: str | Path, n_words: int | None, marks: Sequence[str] = MARKS
    ) -> Vocabulary:
        """Read a vocabulary file, and compare it with the words or digest that are stored."""
        vocabulary = vocabulary_of(expanded(file), self.options, n_words, marks)
        checkpoint = self.checkpoint
        record = None if checkpoint is None or checkpoint.is_reference else checkpoint.record
        if record is not None and record.vocabulary != vocabulary.digest:
            raise DataError(
                f"{vocabulary.filename}: differs from the vocabulary that the {self.description} "
                "was trained with; use that vocabulary"
            )
        stored = self._words_of_softmax
        is_own = Path(vocabulary.filename).absolute() == self.vocabulary_path
        if stored is None and self.vocabulary_path.is_file() and not is_own:
            stored = Vocabulary(self.vocabulary_path)
        if stored is not None:
            vocabulary.require_words_of(stored)
        return vocabulary


def _changed(what: object) -> WeightsError:
    return WeightsError(f"{what}: replaced or removed while the model was read; repeat the command")


def names_by_folder(paths: Iterable[PurePath]) -> dict[PurePath, set[str]]:
    """Return the names of the files in the top folder and in those one level below."""
    folders: dict[PurePath, set[str]] = defaultdict(set)
    for path in paths:
        if len(path.parts) <= 2:
            folders[path.parent].add(path.name)
    return folders


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


def paths_inside(folder: Path, path: str) -> list[Path]:
    """Return where in a folder the file of a path of another machine may be: below the folder, if
    the path is relative, and directly in the folder."""
    foreign = PureWindowsPath(path)  # splits at either kind of slash
    candidates = [folder / foreign.name] if foreign.name else []
    if foreign.name and not foreign.anchor and ".." not in foreign.parts:
        candidates.insert(0, folder / foreign.as_posix())
    return candidates
