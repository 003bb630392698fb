"""`StoredModel`: a run, an export or another stored biLM, opened once and passed around."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bilm.data.marks import BOS, EOS, MARKS
from bilm.data.profile import Profile
from bilm.data.vocabulary import Vocabulary, vocabulary_of
from bilm.errors import DataError, OptionsError, WeightsError
from bilm.options.model_options import PROFILE, ModelOptions
from bilm.storage import names
from bilm.storage.finding.locate import locate
from bilm.storage.formats.base import Format, Mix, Softmax, Tensors
from bilm.storage.formats.bilm_tf import hdf5_tensors
from bilm.storage.stored_weights import StoredWeights
from bilm.support.files import expanded, sha256_of
from bilm.support.urls import masked

if TYPE_CHECKING:
    from bilm.language_model import BiLM
    from bilm.storage.checkpoint import Checkpoint

SCORING = "score sentences or replace words"  # what requires a softmax, for messages


def open_model(
    source: str | Path | StoredModel,
    weights: str | Path | None = None,
    softmax: str | Path | None = None,
) -> StoredModel:
    """Open a stored model; a `StoredModel` is returned unchanged.

    Args:
        source: a folder, archive, URL or name; or, with `weights`, the options. See
            `bilm.storage.finding.locate.locate`.
        weights: the HDF5 file, or the index file of a checkpoint.
        softmax: HDF5 with `softmax/W`, `softmax/b` and `vocabulary`; None for
            `<stem>_softmax.hdf5` beside the weights of an export.
    Raises: WeightsError if the model does not exist or cannot be downloaded; OptionsError if
        `softmax` is given for a model that does not use one, or if `weights` or `softmax` is given
        with a `StoredModel`.
    """
    if isinstance(source, StoredModel):
        if weights is not None or softmax is not None:
            raise OptionsError(
                f"{source}: is already open; pass weights and softmax to the call of open_model "
                "that opens it"
            )
        return source
    files = locate(source, weights)
    if softmax is not None:
        files.use_softmax(Path(softmax).expanduser())
    arguments = [os.fspath(path) for path in (source, weights) if path is not None]
    return StoredModel(files, arguments)


class StoredModel:
    """A stored model. Each part is read once, when it is first needed; reading raises OptionsError,
    WeightsError or DataError.

    Args:
        format: the model's files.
        arguments: what the user named: a model, or options and weights.
    """

    def __init__(self, format: Format, arguments: list[str]):
        self.format, self.arguments = format, arguments

    def __str__(self) -> str:
        return " ".join(map(masked, self.arguments))

    def __repr__(self) -> str:
        return f"StoredModel({str(self)!r})"

    def __reduce__(self) -> tuple:
        return StoredModel, (self.format, self.arguments)

    @property
    def folder(self) -> Path:
        """The folder that contains the options."""
        return self.format.folder

    @property
    def own_files(self) -> list[Path]:
        """The files of the model and known files beside them, which no output must replace."""
        stored = self.format
        return [*stored.files(), stored.vocabulary_path, stored.softmax_path, stored.ngrams_path]

    @cached_property
    def options(self) -> ModelOptions:
        """The options."""
        return self.format.options()

    @cached_property
    def profile(self) -> Profile | None:
        """The profile of the training text; None if it is not stored."""
        return Profile.from_record(self.options.other.get(PROFILE))

    @property
    def tensors(self) -> Tensors:
        """The weights of the biLM."""
        return self.format.tensors

    @cached_property
    def softmax(self) -> Softmax | None:
        """The softmax, or None if the model has none."""
        return self.format.softmax()

    @cached_property
    def mixes(self) -> list[Mix]:
        """The learned weightings of the layers that the files contain; empty for most formats."""
        return self.format.mixes()

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint of a run, None for other models."""
        return self.format.checkpoint()

    @cached_property
    def n_words(self) -> int | None:
        """The number of words of the softmax, or else of the word table; None without both."""
        if self.softmax is not None:
            return self.softmax.n_words
        return names.n_words(self.tensors) if self.options.reads_words else None

    @cached_property
    def digest(self) -> str:
        """The identity of the model: a SHA-256 of the content of its files."""
        return self.digest_with()

    def digest_with(self, *others: Path) -> str:
        """Return a SHA-256 of the content of the model's files and of other files."""
        files = [*self.format.fingerprint_files(), *others]
        try:
            digests = "".join(map(sha256_of, files))
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
        """Raise WeightsError if the files have changed since `digest` was computed, so that results
        in between do not belong to the digest."""
        if self.digest_with() != self.digest:
            raise _changed(self)

    def require_softmax(self, purpose: str = SCORING) -> Softmax:
        """Return the softmax. Raises: OptionsError for a format without a softmax; WeightsError if
        it is missing: the model cannot `purpose`."""
        if not self.format.has_softmax:
            raise self._without_softmax(purpose)
        if self.softmax is None:
            raise WeightsError(
                f"{self}: the model has no softmax and cannot {purpose}; expected "
                f"{self.format.softmax_path}, which bilm export --include_softmax writes"
            )
        return self.softmax

    def require_trainable(self, purpose: str) -> None:
        """Raise OptionsError if models of this format cannot be trained further."""
        if not self.format.trainable:
            raise self._without_softmax(purpose)

    def _without_softmax(self, purpose: str) -> OptionsError:
        return OptionsError(
            f"{self}: files of {self.format.name} models do not contain a softmax; this model "
            f"computes vectors, but cannot {purpose}"
        )

    def require_run(self) -> Checkpoint:
        """Return the checkpoint of a run. Raises: WeightsError for a model that is not a run."""
        if self.checkpoint is None:
            raise WeightsError(
                f"{self}: found {self.format.weight_file.name}, but no checkpoint; expected a run"
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
            token_table: HDF5 with `embedding` (V, P), the vectors of token ids, as
                `dump_token_embeddings` writes it; None for the table of a model that reads words.
            has_softmax: whether the biLM has its softmax.
        """
        options, n_words = self.options, None
        sources = [self.tensors.only(names.is_bilm)]
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
            n_words = names.n_words(table)
            sources = [
                table.only(lambda name: name == "embedding"),
                self.tensors.only(lambda name: name.startswith("RNN_")),
            ]
        if has_softmax:
            softmax = self.require_softmax()
            n_words = softmax.n_words
            sources.append(softmax.tensors.only(lambda name: not names.is_bilm(name)))
        return StoredWeights(options, n_words, sources, has_softmax)

    def build(self, token_ids: bool = False, token_table: str | Path | None = None) -> BiLM:
        """Build a biLM with padding, for ids of batchers; for the arguments, see `weights`."""
        return self.weights(token_ids, token_table).build(padding=True)

    def build_language_model(self, purpose: str = SCORING) -> BiLM:
        """Build a biLM with its softmax; without one, the model cannot `purpose`."""
        self.require_softmax(purpose)
        return self.weights(has_softmax=True).build()

    def assign(self, model: BiLM, softmax: bool = True, stacks: bool = True) -> None:
        """Set the variables of a built model: of its encoder, and of its softmax and LSTMs if
        `softmax` and `stacks`."""
        variables = names.stored_variables(model)
        for name, value in self.weights(has_softmax=softmax).values(model.padding):
            if stacks or not name.startswith("RNN_"):
                variables[name].assign(value)

    def vocabulary_file(self, vocab_file: str | Path | None = None) -> Path | None:
        """Return the absolute path of the vocabulary file of a model that reads words: the given
        file, or the one beside the options; None without either and for other models. For its
        words, see `check_words`."""
        if not self.options.reads_words:
            return None
        if vocab_file:
            return Path(expanded(vocab_file)).absolute()
        return self.format.vocabulary_path if self.format.vocabulary_path.is_file() else None

    def check_words(self, vocab_file: str | Path | None) -> None:
        """Compare the vocabulary file of a model that reads words with the model's own words, if
        there are both. Raises: DataError if the words differ."""
        if vocab_file is None or not self.options.reads_words:
            return
        is_own = Path(expanded(vocab_file)).absolute() == self.format.vocabulary_path
        if is_own and self.checkpoint is None and self.softmax is None:
            return  # no other file contains the words
        self._read_words(vocab_file, names.n_words(self.tensors), (BOS, EOS))

    def vocabulary(self, vocab_file: str | Path | None = None) -> Vocabulary:
        """Return the words of the softmax or word table: those stored with the softmax, or else in
        the file beside the options. The words of `vocab_file` are compared with these. Raises:
        DataError if the file is missing, or if the words differ in number or content."""
        stored = self._words_of_softmax
        if vocab_file is None and stored is not None:
            return stored
        return self._read_words(vocab_file or self.format.vocabulary_path, self.n_words)

    @cached_property
    def _words_of_softmax(self) -> Vocabulary | None:
        if self.softmax is None or self.softmax.words is None:
            return None
        words, source = self.softmax.words, self.softmax.tensors.paths[0]
        return vocabulary_of(source, self.options, len(words), (), words)

    def _read_words(
        self, file: str | Path, n_words: int | None, marks: Sequence[str] = MARKS
    ) -> Vocabulary:
        """Read a vocabulary file and compare it with the words that are stored with the softmax, in
        the checkpoint, or else beside the options. Raises: DataError."""
        vocabulary = vocabulary_of(expanded(file), self.options, n_words, marks)
        checkpoint = self.checkpoint
        if (
            checkpoint is not None
            and not checkpoint.is_reference
            and checkpoint.record.vocabulary != vocabulary.digest
        ):
            raise DataError(
                f"{vocabulary.filename}: differs from the vocabulary that {checkpoint.path} "
                "was trained with; use that vocabulary"
            )
        stored = self._words_of_softmax
        is_own = Path(vocabulary.filename).absolute() == self.format.vocabulary_path
        if stored is None and self.format.vocabulary_path.is_file() and not is_own:
            stored = Vocabulary(self.format.vocabulary_path)
        if stored is not None:
            vocabulary.require_words_of(stored)
        return vocabulary


def _changed(what: object) -> WeightsError:
    return WeightsError(f"{what}: replaced or removed while the model was read; repeat the command")
