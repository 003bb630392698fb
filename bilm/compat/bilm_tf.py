"""`BidirectionalLanguageModel`, `weight_layers` and `dump_token_embeddings` of bilm-tf."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from bilm.data.marks import BOS, EOS
from bilm.data.model_ids import Batcher, TokenBatcher, batcher, check_ids, check_ids_shape
from bilm.data.vocabulary import Vocabulary
from bilm.elmo.row_states import RowStates
from bilm.errors import DataError, OptionsError
from bilm.inference.backend import open_backend
from bilm.inference.words import WordVectors
from bilm.layers.functional import compiled, without_marks
from bilm.layers.scalar_mix import ScalarMix, normalized
from bilm.storage.hdf5 import NewHDF5
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.files import expanded, protect, replacing

TABLE_WORDS = 1 << 13  # rows of a word table written at a time


class BidirectionalLanguageModel:
    """A stored biLM that embeds the output of `Batcher` or `TokenBatcher`.

    Args:
        options_file, weight_file: see `bilm.storage.stored_model.open_model`.
        use_character_inputs: False reads token ids (`TokenBatcher`) and looks up their vectors.
        embedding_weight_file: HDF5 with `embedding` (V, P), the vectors of token ids; None for
            those of `weight_file`, which a model that reads words has.
        max_batch_size: accepted for old scripts and ignored; a batch has any size.
        stateful: keep the LSTM state of each row between calls, as the reference does.

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
        self._word_table_of = stored if embedding_weight_file is None else None
        self.model = stored.build(
            token_ids=not use_character_inputs, token_table=embedding_weight_file
        )
        self.options = self.model.options
        self.stateful = stateful
        self._run = compiled(self.model)
        self._states = RowStates(self.model)

    def __call__(self, ids: ArrayLike) -> dict[str, np.ndarray]:
        """Embed a batch: characters integer (B, T + 2, C) or words (B, T + 2). Id 0 is padding,
        anywhere in a row; the first and the last other place are marks.

        Returns: dict of NumPy arrays: `lm_embeddings` float32 (B, layers + 1, T, 2 P), 0 outside
            the mask; `mask` boolean (B, T), the places of words; `lengths` int32 (B,), the numbers
            of words; and `token_embeddings` float32 (B, T + 2, P), including the marks.
        """
        ids = _whole_numbers(ids)
        check_ids_shape(ids.shape, self.options)
        check_ids(ids, self.options, self.model.n_tokens)

        # The states are zero unless an earlier call has stored them.
        result = self._run(ids.astype(np.int32), self._states.start(len(ids)))
        if self.stateful:
            self._states.finish(result["state"])

        # Only words, without the marks of sentences, are part of the results.
        mask = ops.convert_to_numpy(without_marks(result["mask"]))  # B, T
        layers = ops.convert_to_numpy(result["layers"])[:, :, 1:-1]  # B, layers + 1, T, 2 P
        return {
            "lm_embeddings": layers * mask[:, None, :, None],
            "lengths": mask.sum(axis=1, dtype=np.int32),
            "mask": mask,
            "token_embeddings": ops.convert_to_numpy(result["token_embeddings"]),
        }

    def batcher(self, lm_vocab_file: str | Path | None = None) -> Batcher | TokenBatcher:
        """Return a batcher that makes the ids of this model: see `bilm.Elmo.batcher`."""
        if self._word_table_of is not None:
            self._word_table_of.check_words(lm_vocab_file)
        return batcher(self.options, lm_vocab_file)

    def reset_states(self) -> None:
        """Set the states of all rows to zero."""
        self._states.reset()


def _whole_numbers(ids: ArrayLike) -> np.ndarray:
    """Return ids as an array. Raises: DataError for other values and for a placeholder."""
    try:
        array = np.asarray(ids)
    except NotImplementedError as error:  # TensorFlow's, for a symbolic tensor
        raise DataError(
            "ids are a symbolic tensor: placeholders and sessions are not supported; call the "
            "model on the result of batch_sentences, or use bilm.Elmo in a Keras model"
        ) from error
    # Old scripts fill the floats of np.zeros with ids, which TensorFlow 1 accepted.
    is_whole = array.dtype.kind == "f" and bool((array == np.floor(array)).all())
    if array.size and not (is_whole or array.dtype.kind in "iu"):
        raise DataError(
            f"ids are {array.dtype}, expected integers, such as the result of batch_sentences"
        )
    return array


# --- weight_layers ---

_mixes: dict[str, ScalarMix] = {}


def weight_layers(
    name: str,
    bilm_ops: Mapping[str, Any],
    l2_coef: float | None = None,
    use_top_only: bool = False,
    do_layer_norm: bool = False,
    reuse: bool = False,
) -> dict[str, Any]:
    """Return the weighted sum of a biLM's layers as bilm-tf's function does; see also `bilm.Elmo`.

    Args:
        name: name of the weights, which this module keeps in a Keras layer: see `mix_layer`.
        bilm_ops: what a call of a `BidirectionalLanguageModel` returns.
        l2_coef: weight of the penalty l2_coef * sum w^2 on the weights; None for no penalty.
        use_top_only: return gamma times the last layer, without a penalty.
        do_layer_norm: normalize each layer before it is weighted.
        reuse: share the weights of the call that created `name`.
    Returns: dict of the eager tensors `weighted_op` float `(B, T, D)` and `regularization_op` `()`.
    Raises: ValueError unless `reuse` is whether `name` exists.

    Example:
        model = bilm.BidirectionalLanguageModel("options.json", "weights.hdf5")
        elmo = bilm.weight_layers("input", model(ids), l2_coef=1e-3)["weighted_op"]
    """
    layers = ops.convert_to_tensor(bilm_ops["lm_embeddings"], "float32")  # B, layers, T, D
    mask = ops.convert_to_tensor(bilm_ops["mask"], "bool")  # B, T
    if reuse:
        mix = mix_layer(name)
    elif name in _mixes:
        raise ValueError(
            f"weights named {name!r} exist; pass reuse=True to share them, or another name"
        )
    else:
        # Keras names cannot contain a slash; names of variable scopes in bilm-tf can.
        mix = ScalarMix(name=name.replace("/", "_"))
        mix.build((None, layers.shape[1], None, None))
        _mixes[name] = mix
    if use_top_only:
        return {"weighted_op": mix.gamma * layers[:, -1], "regularization_op": ops.zeros(())}

    if do_layer_norm:
        layers = normalized(layers, mask)
    penalty = (l2_coef or 0.0) * ops.sum(ops.square(mix.weights_before_softmax))
    return {"weighted_op": mix(layers, mask=mask), "regularization_op": penalty}


def mix_layer(name: str) -> ScalarMix:
    """Return the Keras layer that holds the weights of `weight_layers` under a name, to train or
    save them. Raises: ValueError if no weights have this name."""
    if name not in _mixes:
        known = ", ".join(sorted(_mixes)) or "none"
        raise ValueError(f"no weights named {name!r}; expected one of: {known}")
    return _mixes[name]


def dump_token_embeddings(
    vocab_file: str | Path,
    options_file: str | Path | StoredModel,
    weight_file: str | Path | None,
    outfile: str | Path,
) -> None:
    """Write the context-free vectors of a vocabulary, for `embedding_weight_file`: an HDF5 file
    with `embedding`, float32 (V, P), with word i of the vocabulary in row i. Raises: OptionsError
    if the model already reads words; DataError, WeightsError."""
    vocab = Vocabulary(expanded(vocab_file))
    stored = open_model(options_file, weight_file)
    protect(outfile, vocab_file, *stored.own_files)
    if stored.options.reads_words:
        raise OptionsError(f"{stored}: the model reads words; its weights contain their vectors")

    encode = WordVectors(open_backend(stored))
    begin, end = encode.marks
    marks = {BOS: begin, EOS: end}  # of the vocabulary -> of the model
    with replacing(outfile) as temporary, NewHDF5(temporary) as file:
        shape = vocab.size, stored.options.lstm.projection_dim
        table = file.create_dataset("embedding", shape, "float32")
        for start in range(0, vocab.size, TABLE_WORDS):
            words = vocab.words[start : start + TABLE_WORDS]
            vectors = encode([marks.get(word, word) for word in words])  # n, P
            table[start : start + len(words)] = vectors
            file.check()
