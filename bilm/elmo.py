"""ELMo in a downstream Keras model: tokens in, one context-dependent vector a token out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import keras
from keras import ops

from bilm import weights
from bilm.language_model import BiLM
from bilm.layers.scalar_mix import ScalarMix
from bilm.options import ModelOptions
from bilm.pretrained import load_weights, stored_options
from bilm.source import resolve

COMBINATIONS = ("mix", "top", "average", "concat")
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
        **kwargs,
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
            if weight_file is not None:
                raise ValueError("a weight file goes with an options file, not with its content")
            options, self._files = ModelOptions.from_dict(options_file), None
        else:
            options_file, weight_file = resolve(options_file, weight_file)
            options = stored_options(options_file, weight_file)
            if options.char_cnn is None or embedding_weight_file is not None:
                embedding_weight_file = embedding_weight_file or weight_file
                options = options.replace(char_cnn=None)
                n_words = weights.n_words(embedding_weight_file)
            weights.check_room(options, weight_file, embedding_weight_file, n_rows=n_words)
            self._files = weight_file, embedding_weight_file
        self.options, self.n_words = options, n_words
        # The biLM keeps float32 whatever the policy: its states are sums over long sequences.
        self.bilm = BiLM(options, n_words, padding=True, dtype="float32", name="bilm")
        self.mixes = [
            ScalarMix(do_layer_norm, l2_coef, dtype="float32", name=f"mix_{k}")
            for k in range(n_representations)
            if combine == "mix"
        ]
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self._states = None

    def build(self, input_shape=None):
        """Make the variables and read the weight file, once."""
        self.bilm.build()
        if self._files is not None:
            load_weights(self.bilm, *self._files)
        self.bilm.trainable = self.trainable_bilm
        n_layers = self.options.lstm.n_layers + 1
        for mix in self.mixes:
            mix.build((None, n_layers, None, None))
        self.gammas = []
        if self.combine == "top":
            for k in range(self.n_representations):
                self.gammas.append(self.add_weight((), "ones", name=f"gamma_{k}"))
        self.built = True

    def call(self, inputs, training=None):
        """Embed tokens: see the class for the shapes."""
        layers, mask, _ = self.layers_of(inputs, training)
        outputs = []
        for k in range(self.n_representations):
            vectors = ops.cast(self.combined(layers, mask, k), self.compute_dtype)
            outputs.append(self.dropout(vectors, training=training))
        return outputs[0] if self.n_representations == 1 else outputs

    def layers_of(self, inputs, training=None):
        """Give the biLM's layers float (B, layers + 1, T, 2 P), their mask and P-wide vectors."""
        ids = self._ids(inputs)
        result = self.bilm(ids, self._start(ids), training=bool(training) and self.trainable_bilm)
        self._finish(result["state"])
        layers, vectors = result["layers"], result["token_embeddings"]
        mask = result["mask"]
        if not self.keep_sentence_boundaries:
            layers, vectors, mask = layers[:, :, 1:-1], vectors[:, 1:-1], mask[:, 2:]
        if not self.trainable_bilm:
            layers = ops.stop_gradient(layers)
        return layers, mask, vectors

    def compute_mask(self, inputs, previous=None):
        """Give which tokens are there, boolean (B, T), once for each representation."""
        if len(inputs.shape) == 2:
            mask = ops.not_equal(inputs, "") if _is_string(inputs) else inputs > 0
        else:
            mask = ops.any(inputs > 0, axis=-1)
        if _is_string(inputs):
            if self.keep_sentence_boundaries:
                mask = ops.any(self._ids(inputs) > 0, axis=-1)
        elif not self.keep_sentence_boundaries:
            mask = mask[:, 2:]
        return mask if self.n_representations == 1 else [mask] * self.n_representations

    def compute_output_shape(self, input_shape):
        """Give the shape of the output, or of each of them."""
        n_directions = len(self.bilm.directions)
        width = n_directions * self.options.lstm.projection_dim
        if self.combine == "concat":
            width *= self.options.lstm.n_layers + 1
        shape = (*input_shape[:2], width)
        return shape if self.n_representations == 1 else [shape] * self.n_representations

    def reset_states(self) -> None:
        """Start afresh: with `stateful`, the next call finds zero states in every row."""
        for variable in self._states or ():
            variable.assign(variable[:0])

    def get_config(self):
        """Give the arguments, with the content of the options in place of their path."""
        return {
            **super().get_config(),
            "options_file": {
                **self.options.to_dict(),
                "bidirectional": self.options.bidirectional,
            },
            "n_representations": self.n_representations,
            "combine": self.combine,
            "do_layer_norm": self.do_layer_norm,
            "l2_coef": self.l2_coef,
            "dropout": self.dropout.rate,
            "trainable_bilm": self.trainable_bilm,
            "keep_sentence_boundaries": self.keep_sentence_boundaries,
            "stateful": self.stateful,
            "n_words": self.n_words,
        }

    def combined(self, layers, mask, k: int = 0):
        """Give representation k of the layers, 0 where the mask is: float (B, T, width)."""
        return self._combine(layers, mask, k) * ops.cast(mask, layers.dtype)[..., None]

    def _combine(self, layers, mask, k: int):
        if self.combine == "mix":
            return self.mixes[k](layers, mask=mask)
        if self.combine == "top":
            return self.gammas[k] * layers[:, -1]
        if self.combine == "average":
            return ops.mean(layers, axis=1)
        n_layers = layers.shape[1]
        return ops.concatenate([layers[:, j] for j in range(n_layers)], axis=-1)

    def _ids(self, inputs):
        if not _is_string(inputs):
            return inputs
        from bilm.strings import char_ids

        if self.options.char_cnn is None:
            raise ValueError("this biLM reads word ids from TokenBatcher; it cannot spell strings")
        return char_ids(inputs, self.options.char_cnn.max_characters_per_token)

    # With `stateful`, each part of the state is a variable that grows with the batch.

    def _start(self, ids):
        if not self.stateful:
            return None
        import tensorflow as tf

        if self._states is None:
            with tf.init_scope():
                zeros = self.bilm.flatten_state(self.bilm.zero_state(0))
                self._states = [
                    tf.Variable(z, shape=(None, z.shape[1]), trainable=False) for z in zeros
                ]
        n_rows = tf.shape(ids)[0]
        starts = []
        for variable in self._states:
            missing = tf.maximum(n_rows - tf.shape(variable)[0], 0)
            variable.assign(tf.pad(variable, [[0, missing], [0, 0]]))
            starts.append(variable[:n_rows])
        return self.bilm.pack_state(starts)

    def _finish(self, state) -> None:
        if not self.stateful:
            return
        for variable, last in zip(self._states, self.bilm.flatten_state(state), strict=True):
            variable.assign(ops.concatenate([last, variable[ops.shape(last)[0] :]], axis=0))


def _is_string(inputs) -> bool:
    return keras.backend.standardize_dtype(inputs.dtype) == "string"
