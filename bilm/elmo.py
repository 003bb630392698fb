"""ELMo in a downstream Keras model: tokens in, one context-dependent vector a token out."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
from keras import ops

from bilm.data.alphabet import alphabet_of
from bilm.data.batcher import Batcher, TokenBatcher
from bilm.language_model import BiLM
from bilm.layers.functional import with_marks
from bilm.layers.scalar_mix import ScalarMix
from bilm.model import batcher, ids_of, is_string, rows_and_steps
from bilm.options import ModelOptions
from bilm.schema import unexpected
from bilm.storage import stored_weights
from bilm.storage.load import stored_model
from bilm.storage.stored_weights import StoredWeights
from bilm.weighting import weight_layers  # noqa: F401 (bilm-tf has it here)

COMBINATIONS = ("mix", "top", "average", "concat")
ARGUMENTS = (  # that a layer keeps under their own names
    "n_representations", "combine", "do_layer_norm", "l2_coef", "trainable_bilm",
    "keep_sentence_boundaries", "stateful", "n_words",
)  # fmt: skip
MAX_REPRESENTATIONS = 128  # each has weights of its own


@keras.saving.register_keras_serializable(package="bilm")
class Elmo(keras.layers.Layer):
    """gamma * sum_j softmax(w)_j * layer_j over the layers of a stored biLM.

    Args:
        options_file: `options.json`; or a folder, a ZIP archive, a URL or a published name that
            stands for both files; or the content of an options file, whose weights a saved model
            brings.
        weight_file: the HDF5 file with the weights, where `options_file` names one file.
        n_representations: how many outputs with weights of their own; the paper uses one at the
            task network's input and one at its output.
        combine: `mix` learns weights and gamma; `top` is gamma times the last layer; `average`
            and `concat` (all layers side by side) have nothing to learn.
        do_layer_norm: normalise the layers before mixing, over the whole batch: only then does a
            sentence's vector depend on its batch.
        l2_coef: weight of l2_coef * sum w^2 on the mix, added to the model's losses.
        dropout: rate on the output, in training.
        trainable_bilm: train the biLM too; otherwise only the mix weights and gamma.
        keep_sentence_boundaries: give vectors for the marks of a sentence too.
        stateful: start each row where the call before left it, as the reference does; a sentence
            then has no vector of its own. See `reset_states`. TensorFlow only.
        embedding_weight_file: HDF5 with `embedding` (V, P), cached token vectors as
            `dump_token_embeddings` writes them; the layer then reads word ids.
        n_words: V, which a saved layer knows without the file.

    Inputs: one of: `tf.string` tokens `(B, T)` with `""` as padding (TensorFlow only); characters
    integer `(B, T + 2, C)` as `Batcher` gives them; words integer `(B, T + 2)` as `TokenBatcher`
    gives them, with a word table. Returns: float `(B, T, 2 P)`, for `concat`
    `(B, T, (layers + 1) 2 P)`, or a list of `n_representations` of them, T + 2 with boundaries
    kept; each with a Keras mask.
    Raises: OptionsError, WeightsError; ValueError for arguments that contradict each other.
    Reference: Peters et al. 2018, arXiv:1802.05365.

    Example:
        tokens = keras.Input((None,), dtype="string")
        vectors = bilm.Elmo("options.json", "weights.hdf5", l2_coef=1e-3, dropout=0.5)(tokens)
    """

    def __init__(
        self,
        options_file: str | Path | Mapping,
        weight_file: str | Path | None = None,
        n_representations: int = 1,
        combine: str = "mix",
        do_layer_norm: bool = False,
        l2_coef: float | None = None,
        dropout: float = 0.0,
        trainable_bilm: bool = False,
        keep_sentence_boundaries: bool = False,
        stateful: bool = False,
        embedding_weight_file: str | Path | None = None,
        n_words: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if combine not in COMBINATIONS:
            raise ValueError(f"combine is {combine!r}, expected one of {COMBINATIONS}")
        if n_representations not in range(1, MAX_REPRESENTATIONS + 1):
            expected = f"an integer from 1 to {MAX_REPRESENTATIONS}"
            raise ValueError(f"n_representations is {n_representations!r}, expected {expected}")
        if stateful and keras.backend.backend() != "tensorflow":
            raise ValueError("stateful=True keeps TensorFlow variables; Keras runs another backend")
        self.n_representations, self.combine = n_representations, combine
        self.do_layer_norm, self.l2_coef = do_layer_norm, l2_coef
        self.trainable_bilm, self.stateful = trainable_bilm, stateful
        self.keep_sentence_boundaries = keep_sentence_boundaries
        self.supports_masking = True
        if isinstance(options_file, Mapping):
            if weight_file is not None or embedding_weight_file is not None:
                raise ValueError("a weight file goes with an options file, not with its content")
            options, stored = ModelOptions.from_dict(options_file), None
        else:
            files = options_file, weight_file, embedding_weight_file
            options, n_words, stored = stored_model(*files, words=embedding_weight_file is not None)
        self.options, self.n_words = options, n_words
        self.bilm = BiLM(options, n_words, padding=True, name="bilm")
        self._start_from(stored)
        self.mixes = [
            ScalarMix(do_layer_norm, l2_coef, dtype="float32", name=f"mix_{k}")
            for k in range(n_representations)
            if combine == "mix"
        ]
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self._states, self._building = None, threading.RLock()
        # XLA knows no strings and no variable that grows. `build` sees whether inputs are strings.
        may_read_strings = not options.reads_words and keras.backend.backend() == "tensorflow"
        self._spell = None
        self.supports_jit = not (may_read_strings or stateful)

    @property
    def trainable(self) -> bool:
        """Whether anything is trained; the biLM only with `trainable_bilm`."""
        return super().trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.layers.Layer.trainable.fset(self, value)
        if hasattr(self, "bilm"):
            self.bilm.trainable = bool(value) and self.trainable_bilm

    def _start_from(self, stored: StoredWeights | None) -> None:
        """Choose the files that the biLM starts from; without any its weights are to be loaded."""
        self._stored = stored
        if stored is None:
            stored_weights.leave_unset(self.bilm)
        else:
            stored.start(self.bilm)

    def build(self, input_shape: Any = None) -> None:
        """Make the variables, the biLM's with their stored values; once, in whichever thread."""
        with self._building:
            if not self.built:
                self._build(input_shape)

    def _build(self, input_shape):
        self.bilm.build()
        # Reaches the sublayers, as a constructor's does not; Keras drops `x.a = x.a`.
        Elmo.trainable.fset(self, self.trainable)
        n_layers = self.options.lstm.n_layers + 1
        for mix in self.mixes:
            mix.build((None, n_layers, None, None))
        self.gammas = []
        if self.combine == "top":
            for k in range(self.n_representations):
                kind = dict(initializer="ones", dtype="float32", autocast=False)
                self.gammas.append(self.add_weight(shape=(), name=f"gamma_{k}", **kind))
        if input_shape is not None and len(input_shape) == 3:
            self.supports_jit = not self.stateful
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Embed tokens: see the class for the shapes."""
        layers, mask, _ = self.layers_of(inputs, training)
        outputs = []
        for k in range(self.n_representations):
            vectors = ops.cast(self.combined(layers, mask, k), self.compute_dtype)
            outputs.append(self.dropout(vectors, training=training))
        return outputs[0] if self.n_representations == 1 else outputs

    def layers_of(self, inputs: Any, training: bool | None = None) -> Any:
        """Return the biLM's layers float (B, layers + 1, T, 2 P), their mask and P-wide vectors."""
        self.require_weights()
        ids = ids_of(inputs, self.options, self.speller)
        start = self._row_states().start(ops.shape(ids)[0]) if self.stateful else None
        result = self.bilm(ids, start, training=bool(training) and self.trainable_bilm)
        if self.stateful:
            self._row_states().finish(result["state"])
        layers, vectors = result["layers"], result["token_embeddings"]
        mask = result["mask"]
        if not self.keep_sentence_boundaries:
            layers, vectors, mask = layers[:, :, 1:-1], vectors[:, 1:-1], mask[:, 2:]
        if not self.trainable_bilm:
            layers = ops.stop_gradient(layers)
        return layers, mask, vectors

    def require_weights(self) -> None:
        """Stop a layer that was made from options alone and has no weights yet.

        Raises: WeightsError, in a graph an error of TensorFlow's when that runs.
        """
        if self._stored is None:
            stored_weights.refuse_unset(self.bilm)

    def compute_mask(self, inputs: Any, previous: Any = None) -> Any:
        """Return which tokens are there, boolean (B, T), once for each representation."""
        strings = is_string(inputs)
        if len(inputs.shape) == 2:
            mask = ops.not_equal(inputs, "") if strings else inputs > 0
        else:
            mask = ops.any(inputs > 0, axis=-1)
        if strings and self.keep_sentence_boundaries:
            mask = with_marks(mask)
        elif not strings and not self.keep_sentence_boundaries:
            mask = mask[:, 2:]
        return mask if self.n_representations == 1 else [mask] * self.n_representations

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the shape of the output, or of each of them."""
        width = len(self.bilm.directions) * self.options.lstm.projection_dim
        if self.combine == "concat":
            width *= self.options.lstm.n_layers + 1
        n_rows, n_steps = rows_and_steps(input_shape)
        has_marks = len(input_shape) == 3 or self.options.reads_words  # ids, not strings
        if n_steps is not None:
            n_steps += 2 * (self.keep_sentence_boundaries - has_marks)
        shape = n_rows, n_steps, width
        return shape if self.n_representations == 1 else [shape] * self.n_representations

    def batcher(self, lm_vocab_file: str | Path | None = None) -> Batcher | TokenBatcher:
        """Return the batcher whose ids this layer reads: see `bilm.model.batcher`."""
        return batcher(self.options, lm_vocab_file)

    def reset_states(self) -> None:
        """Start afresh: with `stateful`, the next call finds zero states in every row."""
        if self.stateful:
            self._row_states().reset()

    def _row_states(self):
        if self._states is None:
            from bilm.row_states import RowStates

            self._states = RowStates(self.bilm)
        return self._states

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, with the content of the options in place of their path."""
        return {
            **super().get_config(),
            "options_file": {
                **self.options.to_dict(),
                "bidirectional": self.options.bidirectional,
            },
            "dropout": self.dropout.rate,
            **{name: getattr(self, name) for name in ARGUMENTS},
            "weights_key": self._stored and self._stored.key,  # a copy in this process reads it
        }

    @classmethod
    def from_config(cls, config: Any) -> Any:
        """Make a layer from `get_config`. What a config names is never opened or fetched.

        Its weights are those of the files that this process made the original from, if they are
        unchanged; otherwise they have to be loaded before it is called.

        Raises: OptionsError if the options are a path or a URL, or cannot be used.
        """
        config = dict(config)
        stored = stored_weights.known(config.pop("weights_key", None))
        options = config.get("options_file")
        if not isinstance(options, Mapping):
            raise unexpected("options_file", options, "the content of an options file")
        for name in ("weight_file", "embedding_weight_file"):
            if config.get(name) is not None:
                raise unexpected(name, config[name], "no file: a config holds options alone")
        ModelOptions.from_dict(options)  # Keras would hide the error in one of its own
        layer = super().from_config(config)
        if stored is not None:
            layer._start_from(stored)
        return layer

    def __reduce__(self):
        """Pickle or copy the layer with its weights, which another process could not read."""
        if not self.built:
            self.build()
        return super().__reduce__()

    def combined(self, layers: Any, mask: Any, k: int = 0) -> Any:
        """Return representation k of the layers, 0 where the mask is: float (B, T, width)."""
        return self._combine(layers, mask, k) * ops.cast(mask, layers.dtype)[..., None]

    def _combine(self, layers: Any, mask: Any, k: int) -> Any:
        if self.combine == "mix":
            return self.mixes[k](layers, mask=mask)
        if self.combine == "top":
            return self.gammas[k] * layers[:, -1]
        if self.combine == "average":
            return ops.mean(layers, axis=1)
        n_layers = layers.shape[1]
        return ops.concatenate([layers[:, j] for j in range(n_layers)], axis=-1)

    def speller(self) -> Any:
        """Return what spells strings, made when first used. TensorFlow only."""
        if self._spell is None:
            from bilm.layers.tensorflow.spelling import speller

            self._spell = speller(alphabet_of(self.options))
        return self._spell
