"""`BidirectionalLanguageModel` and the other names of bilm-tf's `bilm.model`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from bilm.data.vocabulary import Batcher, TokenBatcher, alphabet_of
from bilm.embedding.corpus import dump_bilm_embeddings
from bilm.embedding.token_cache import dump_token_embeddings
from bilm.errors import DataError
from bilm.layers.functional import compiled, without_marks
from bilm.options.model_options import ModelOptions
from bilm.storage.stored_model import StoredModel, open_model

__all__ = ["BidirectionalLanguageModel", "dump_bilm_embeddings", "dump_token_embeddings"]


def batcher(
    options: ModelOptions, lm_vocab_file: str | Path | None = None
) -> Batcher | TokenBatcher:
    """Return a batcher that makes the ids of a model with these options.

    Args:
        lm_vocab_file: the vocabulary, required for a model that reads words.
    Raises: DataError if the file is missing or cannot be used.
    """
    if options.char_cnn is not None:
        return Batcher(lm_vocab_file, options.char_cnn.max_characters_per_token)
    if (alphabet := alphabet_of(options)) is not None:
        return Batcher.of(alphabet)
    if lm_vocab_file is None:
        raise DataError("this model reads words; give the vocabulary file of its word table")
    return TokenBatcher(lm_vocab_file)


def check_ids_shape(shape: tuple[int | None, ...], options: ModelOptions) -> None:
    """Check the shape of a batch of ids. Raises: DataError for ids of another batcher."""
    shape, alphabet = tuple(shape), alphabet_of(options)
    if alphabet is None:
        if len(shape) != 2:
            raise DataError(f"ids have shape {shape}, expected 2 axes as TokenBatcher returns")
        return
    if len(shape) != 3:
        raise DataError(f"ids have shape {shape}, expected 3 axes as Batcher returns")
    if shape[2] not in (None, alphabet.width):
        raise DataError(
            f"ids have {shape[2]} characters per word, but the model reads {alphabet.width}; make "
            "them with the batcher() of the model"
        )


def check_ids(ids: np.ndarray, options: ModelOptions, n_tokens: int | None) -> None:
    """Check the values of a batch of ids, where `n_tokens` is the number of words of a word table.

    Raises: DataError if one is out of range.
    """
    alphabet = alphabet_of(options)
    n_ids = np.array([n_tokens]) if alphabet is None else alphabet.n_ids
    if ids.size and not ((ids >= 0) & (ids <= n_ids)).all():
        raise DataError(f"ids from {ids.min()} to {ids.max()}, expected 0 to {n_ids.max()}")


class BidirectionalLanguageModel:
    """A stored biLM that embeds the output of `Batcher` or `TokenBatcher`.

    Args:
        options_file, weight_file: see `bilm.storage.stored_model.open_model`.
        use_character_inputs: False reads token ids (`TokenBatcher`) and looks up their vectors.
        embedding_weight_file: HDF5 with `embedding` (V, P), the vectors of token ids; None for
            those of `weight_file`, which a model that reads words has.
        max_batch_size: accepted for old scripts and ignored; a batch has any size.
        stateful: keep the LSTM state of each row between calls, as the reference does. Otherwise
            each call starts from zero state, and a sentence always has the same vectors.

    Raises: OptionsError, WeightsError; when called, DataError for ids of another model.
    """

    def __init__(
        self,
        options_file: str | Path | StoredModel,
        weight_file: str | Path | None = None,
        use_character_inputs: bool = True,
        embedding_weight_file: str | Path | None = None,
        max_batch_size: int | None = None,
        stateful: bool = False,
    ):
        stored = open_model(options_file, weight_file)
        self._own_table = stored if embedding_weight_file is None else None
        self.model = stored.build(
            token_ids=not use_character_inputs, token_table=embedding_weight_file
        )
        self.options = self.model.options
        self.stateful = stateful
        self._run = compiled(self.model)
        self._rows: list[np.ndarray] = []
        self.reset_states()

    def __call__(self, ids: Any) -> dict[str, np.ndarray]:
        """Embed a batch: characters integer (B, T + 2, C) or words (B, T + 2).

        Id 0 is padding, anywhere in a row. The first and the last other place of a row are the
        marks of the sentence.

        Returns: dict of NumPy arrays: `lm_embeddings` float32 (B, layers + 1, T, 2 P), 0 outside
            the mask; `mask` boolean (B, T), the places of words; `lengths` int32 (B,), the numbers
            of words; and `token_embeddings` float32 (B, T + 2, P), including the marks.
        """
        ids = _array(ids)
        check_ids_shape(ids.shape, self.options)
        check_ids(ids, self.options, self.model.n_tokens)
        ids = ids.astype(np.int32)
        result = self._run(ids, self._start(ids.shape[0]))
        if self.stateful:
            states = self.model.flatten_state(result["state"])
            for rows, last in zip(self._rows, states, strict=True):
                rows[: ids.shape[0]] = ops.convert_to_numpy(last)
        mask = ops.convert_to_numpy(without_marks(result["mask"]))
        layers = ops.convert_to_numpy(result["layers"])[:, :, 1:-1]
        return {
            "lm_embeddings": layers * mask[:, None, :, None],
            "lengths": mask.sum(axis=1, dtype=np.int32),
            "mask": mask,
            "token_embeddings": ops.convert_to_numpy(result["token_embeddings"]),
        }

    def batcher(self, lm_vocab_file: str | Path | None = None) -> Batcher | TokenBatcher:
        """Return a batcher that makes the ids of this model: see `bilm.model.batcher`.

        Raises: DataError, also if the words differ from the model's word table.
        """
        if self._own_table is not None:
            self._own_table.check_words(lm_vocab_file)
        return batcher(self.options, lm_vocab_file)

    def reset_states(self) -> None:
        """Set the states of all rows to zero."""
        zeros = self.model.flatten_state(self.model.zero_state(0))
        self._rows = [ops.convert_to_numpy(tensor) for tensor in zeros]

    def _start(self, n_rows: int) -> Any:
        """Return the states of the first rows; new rows start from zero state."""
        missing = max(n_rows - len(self._rows[0]), 0)
        self._rows = [np.pad(rows, ((0, missing), (0, 0))) for rows in self._rows]
        return self.model.pack_state([ops.convert_to_tensor(r[:n_rows]) for r in self._rows])


def _array(ids: Any) -> np.ndarray:
    """Return ids as an array of whole numbers.

    Raises: DataError for other values, for rows of different lengths, and for a placeholder of
        TensorFlow 1 or another symbolic tensor.
    """
    try:
        array = np.asarray(ids)
        if array.dtype == object:  # such as a column of pandas
            array = np.array(array.tolist())
    except (NotImplementedError, TypeError, ValueError) as error:
        if isinstance(ids, (list, tuple)):
            raise DataError(f"ids are ragged; pad rows with 0 to equal length: {error}") from error
        raise _no_numbers(ids) from error
    if array.dtype == object:
        raise _no_numbers(ids)
    # Old scripts fill the floats of np.zeros with ids, which TensorFlow 1 accepted.
    is_whole = array.dtype.kind == "f" and bool((array == np.floor(array)).all())
    if array.size and not (is_whole or array.dtype.kind in "iu"):
        raise DataError(
            f"ids are {array.dtype}, expected integers, such as the result of batch_sentences"
        )
    return array


def _no_numbers(ids: Any) -> DataError:
    return DataError(
        f"ids are {type(ids).__name__}, expected an array: placeholders and sessions are not "
        "supported; call the model on the result of batch_sentences, or use bilm.Elmo in a Keras "
        "model"
    )
