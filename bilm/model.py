"""A stored biLM that embeds batches of ids, and the other names of bilm-tf's `bilm.model`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from bilm.data.alphabet import alphabet_of
from bilm.data.batcher import Batcher, TokenBatcher
from bilm.embedding.corpus import dump_bilm_embeddings
from bilm.embedding.token_cache import dump_token_embeddings
from bilm.errors import DataError
from bilm.layers.functional import compiled
from bilm.options import ModelOptions
from bilm.storage.load import load_bilm

__all__ = ["BidirectionalLanguageModel", "dump_bilm_embeddings", "dump_token_embeddings"]


def batcher(
    options: ModelOptions, lm_vocab_file: str | Path | None = None
) -> Batcher | TokenBatcher:
    """Return the batcher whose ids a model of these options reads.

    Args:
        lm_vocab_file: the vocabulary, which only a model that reads words needs.
    Raises: DataError if the file is missing or cannot be used.
    """
    if options.char_cnn is not None:
        return Batcher(lm_vocab_file, options.char_cnn.max_characters_per_token)
    if options.lexicon_encoder is not None:
        return Batcher.of(alphabet_of(options))
    if lm_vocab_file is None:
        raise DataError("this model reads words; give the vocabulary file of its word table")
    return TokenBatcher(lm_vocab_file)


def check_ids_shape(shape: tuple[int | None, ...], options: ModelOptions) -> None:
    """Check the shape of a batch of ids. Raises: DataError, if another batcher has made them."""
    if options.reads_words:
        if len(shape) != 2:
            raise DataError(f"ids have shape {tuple(shape)}, expected 2 axes as TokenBatcher gives")
        return
    if len(shape) != 3:
        raise DataError(f"ids have shape {tuple(shape)}, expected 3 axes as Batcher gives")
    n_characters = alphabet_of(options).width
    if shape[2] not in (None, n_characters):
        raise DataError(
            f"ids have {shape[2]} characters a word, but the model reads {n_characters}; make them "
            "with the model's batcher()"
        )


def ids_of(inputs: Any, options: ModelOptions, speller: Callable) -> Any:
    """Return the ids of a layer's inputs: strings are spelled, integers are checked.

    `speller` returns what spells them.

    Raises: DataError for inputs of another type or shape; ValueError for strings that a model of
        words cannot read.
    """
    dtype = keras.backend.standardize_dtype(inputs.dtype)
    if dtype == "string":
        if options.reads_words:
            raise ValueError("this biLM reads word ids from TokenBatcher; it cannot spell strings")
        _check_strings(inputs)
        return speller()(inputs)
    if "int" not in dtype:
        raise DataError(
            f"the inputs are {dtype}, expected strings or integer ids; say which to Keras: "
            "keras.Input(shape, dtype=...), or `input_dtype` of your model's class"
        )
    check_ids_shape(inputs.shape, options)
    return inputs


def rows_and_steps(shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Return the first two axes of a layer's inputs. Raises: DataError if there are fewer."""
    if len(shape) < 2:
        raise _no_tokens(f"have shape {tuple(shape)}")
    return tuple(shape[:2])


def _check_strings(inputs: Any) -> None:
    """Check that strings are the tokens of sentences. Raises: DataError."""
    if hasattr(inputs, "to_tensor"):
        raise _no_tokens("are ragged")
    if len(inputs.shape) != 2:
        raise _no_tokens(f"have shape {tuple(inputs.shape)}")


def _no_tokens(found: str) -> DataError:
    return DataError(
        f"strings {found}, expected tokens (B, T), '' being padding; of sentences: "
        "tf.strings.split(sentences).to_tensor()"
    )


def is_string(inputs: Any) -> bool:
    """Return whether a tensor holds strings."""
    return keras.backend.standardize_dtype(inputs.dtype) == "string"


class BidirectionalLanguageModel:
    """A stored biLM, called on the output of `Batcher` or `TokenBatcher`.

    Args:
        options_file, weight_file, use_character_inputs, embedding_weight_file: see `load_bilm`.
        max_batch_size: accepted for old scripts and ignored; a batch has any size.
        stateful: carry the LSTM state of each row from call to call, as the reference does;
            otherwise every call starts afresh, and a sentence always gets the same vectors.

    Raises: OptionsError, WeightsError; when called, DataError for ids of another kind.
    """

    def __init__(
        self,
        options_file: str | Path,
        weight_file: str | Path | None = None,
        use_character_inputs: bool = True,
        embedding_weight_file: str | Path | None = None,
        max_batch_size: int | None = None,
        stateful: bool = False,
    ):
        self.model = load_bilm(
            options_file, weight_file, use_character_inputs, embedding_weight_file
        )
        self.options = self.model.options
        self.stateful = stateful
        self._run = compiled(self.model)
        self.reset_states()

    def __call__(self, ids: Any) -> dict[str, np.ndarray]:
        """Embed a batch: characters integer (B, T + 2, C) or words (B, T + 2), 0 being padding.

        Returns: dict of NumPy arrays: `lm_embeddings` float32 (B, layers + 1, T, 2 P) and `mask`
        boolean (B, T), both without the sentence marks, `lengths` int32 (B,) without them, and
        `token_embeddings` float32 (B, T + 2, P) with them. Values outside the mask are 0.
        """
        ids = _array(ids)
        self._check(ids)
        ids = ids.astype(np.int32)
        result = self._run(ids, self._start(ids.shape[0]))
        if self.stateful:
            for rows, last in zip(
                self._rows, self.model.flatten_state(result["state"]), strict=True
            ):
                rows[: ids.shape[0]] = ops.convert_to_numpy(last)
        lengths = np.maximum(ops.convert_to_numpy(result["mask"]).sum(axis=1) - 2, 0)
        n_tokens = max(ids.shape[1] - 2, 0)
        mask = np.arange(n_tokens)[None, :] < lengths[:, None]
        layers = ops.convert_to_numpy(result["layers"])[:, :, 1 : n_tokens + 1]
        return {
            "lm_embeddings": layers * mask[:, None, :, None],
            "lengths": lengths.astype(np.int32),
            "mask": mask,
            "token_embeddings": ops.convert_to_numpy(result["token_embeddings"]),
        }

    def batcher(self, lm_vocab_file: str | Path | None = None) -> Batcher | TokenBatcher:
        """Return the batcher whose ids this model reads: see `bilm.model.batcher`."""
        return batcher(self.options, lm_vocab_file)

    def _check(self, ids: np.ndarray) -> None:
        check_ids_shape(ids.shape, self.options)
        alphabet = alphabet_of(self.options)
        n_ids = np.array([self.model.n_tokens]) if alphabet is None else alphabet.n_ids
        if ids.size and not ((ids >= 0) & (ids <= n_ids)).all():
            raise DataError(f"ids from {ids.min()} to {ids.max()}, expected 0 to {n_ids.max()}")

    def reset_states(self) -> None:
        """Start afresh: the next call finds zero states in every row."""
        zeros = self.model.flatten_state(self.model.zero_state(0))
        self._rows = [ops.convert_to_numpy(tensor) for tensor in zeros]

    def _start(self, n_rows: int) -> Any:
        """Return the states of the first rows; a row that was never there starts from zero."""
        missing = max(n_rows - len(self._rows[0]), 0)
        self._rows = [np.pad(rows, ((0, missing), (0, 0))) for rows in self._rows]
        return self.model.pack_state([ops.convert_to_tensor(r[:n_rows]) for r in self._rows])


def _array(ids: Any) -> np.ndarray:
    """Return ids as an array of whole numbers.

    Raises: DataError for other values, for rows of different lengths, and for what holds no
        numbers: a placeholder of TensorFlow 1 or another tensor of a graph.
    """
    try:
        array = np.asarray(ids)
        if array.dtype == object:  # such as a column of pandas
            array = np.array(array.tolist())
    except (NotImplementedError, TypeError, ValueError) as error:
        if isinstance(ids, (list, tuple)):
            raise DataError(f"ids are no array, pad their rows with 0: {error}") from error
        raise _no_numbers(ids) from error
    if array.dtype == object:
        raise _no_numbers(ids)
    # np.zeros makes floats, which old scripts fill with ids: TensorFlow 1 took them.
    is_whole = array.dtype.kind == "f" and bool((array == np.floor(array)).all())
    if array.size and not (is_whole or array.dtype.kind in "iu"):
        raise DataError(f"ids are {array.dtype}, expected integers as batch_sentences returns them")
    return array


def _no_numbers(ids: Any) -> DataError:
    return DataError(
        f"ids are {type(ids).__name__}, which holds no numbers: there are no placeholders and "
        "sessions here; call the model on what batch_sentences returns, or put bilm.Elmo into "
        "a Keras model"
    )
