"""`Elmo`, a Keras layer that returns one context-dependent vector per token."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import keras
from keras import ops

from bilm.data.model_ids import batcher, check_ids, check_ids_shape
from bilm.data.vocabulary import Batcher, TokenBatcher, alphabet_of
from bilm.errors import DataError, WeightsError
from bilm.language_model import BiLM
from bilm.layers.functional import token_mask, with_marks, without_marks
from bilm.layers.scalar_mix import ScalarMix, normalized
from bilm.options.model_options import ModelOptions
from bilm.options.schema import unexpected
from bilm.storage import stored_weights
from bilm.storage.stored_model import StoredModel, open_model
from bilm.storage.stored_weights import StoredWeights

COMBINATIONS = ("mix", "top", "average", "concat")
ATTRIBUTES = ["n_representations", "combine", "do_layer_norm", "l2_coef", "trainable_bilm", "mix"]
ATTRIBUTES += ["keep_sentence_boundaries", "stateful", "n_words"]


@keras.saving.register_keras_serializable(package="bilm")
class Elmo(keras.layers.Layer):
    """gamma * sum_j softmax(w)_j * layer_j over the layers of a stored biLM.

    Args:
        options_file: path of `options.json`; or the folder, archive, URL or name of a model (see
            `open_model`); or the content of an options file as a dict, for a layer whose weights
            are loaded later.
        weight_file: the HDF5 file with the weights, if `options_file` is a single file.
        n_representations: number of outputs, each with its own weights. The paper uses one at the
            input of the task network and one at its output.
        combine: `mix` learns w and gamma; `top` returns gamma times the last layer; `average`
            returns the mean of the layers; `concat` concatenates the layers.
        do_layer_norm: normalize the layers before mixing, over the whole batch. The vectors of a
            sentence then depend on its batch; otherwise they do not. "with_boundaries" includes
            the marks of sentences in mean and variance, as AllenNLP does.
        l2_coef: weight of the penalty l2_coef * sum w^2, which is added to the losses of the model.
        dropout: dropout rate on the output, in training.
        trainable_bilm: whether to train the biLM in addition to w and gamma.
        keep_sentence_boundaries: whether to return the vectors of the marks of a sentence, too.
        stateful: whether to start each row from the final state of the previous call, as the
            reference does. The vectors of a sentence then depend on earlier calls. See
            `reset_states`. TensorFlow only.
        embedding_weight_file: HDF5 file with `embedding` (V, P), cached token vectors from
            `dump_token_embeddings`; the layer then reads word ids.
        n_words: V, stored in the config of a saved layer.
        mix: initial w and gamma of each output: "stored" for the mixes that the model's files
            contain (AllenNLP and TensorFlow Hub), with their number and normalization; or a list
            with a pair (w, gamma) per output; None for the mean of the layers.

    Inputs: one of
        - `tf.string` tokens `(B, T)` with `""` as padding, or sentences `(B,)`, which are split at
          white space (TensorFlow only)
        - characters integer `(B, T + 2, C)`, as `Batcher` returns them
        - words integer `(B, T + 2)`, as `TokenBatcher` returns them, for a word table
        Ids out of range raise DataError if the layer is called eagerly on TensorFlow; in a graph,
        and on other backends, they are not checked.
    Returns: float `(B, T, 2 P)`, for `concat` `(B, T, (layers + 1) 2 P)`; or a list of
        `n_representations` of them. T + 2 instead of T with sentence boundaries.
    Masking: padding may be anywhere in a row, also between words and before them. The vector of
        each word is the same as without padding, at the position of the word; all other positions
        are 0.
    Each output has a Keras mask. In rows of ids, the first and the last position that is not
    padding contain the marks.
    Raises: OptionsError, WeightsError; ValueError if arguments are invalid or contradict each
        other.
    Reference: Peters et al. 2018, arXiv:1802.05365.

    Example:
        tokens = keras.Input((None,), dtype="string")
        vectors = bilm.Elmo("options.json", "weights.hdf5", l2_coef=1e-3, dropout=0.5)(tokens)
    """

    def __init__(
        self,
        options_file: str | Path | StoredModel | Mapping,
        weight_file: str | Path | None = None,
        n_representations: int = 1,
        combine: str = "mix",
        do_layer_norm: bool | str = False,
        l2_coef: float | None = None,
        dropout: float = 0.0,
        trainable_bilm: bool = False,
        keep_sentence_boundaries: bool = False,
        stateful: bool = False,
        embedding_weight_file: str | Path | None = None,
        n_words: int | None = None,
        mix: str | Sequence[tuple[Sequence[float], float]] | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if combine not in COMBINATIONS:
            raise ValueError(f"combine is {combine!r}, expected one of {COMBINATIONS}")
        if do_layer_norm not in (False, True, "with_boundaries"):
            raise ValueError(
                f"do_layer_norm is {do_layer_norm!r}, expected True, False or 'with_boundaries'"
            )
        if stateful and keras.backend.backend() != "tensorflow":
            raise ValueError("stateful=True requires the TensorFlow backend of Keras")
        self.combine, self.l2_coef = combine, l2_coef
        self.trainable_bilm, self.stateful = trainable_bilm, stateful
        self.keep_sentence_boundaries = keep_sentence_boundaries
        self.supports_masking = True
        if isinstance(options_file, Mapping):
            options, stored = ModelOptions.from_dict(options_file), None
            self._own_table: StoredModel | None = None
        else:
            opened = open_model(options_file, weight_file)
            stored = opened.weights(embedding_weight_file is not None, embedding_weight_file)
            options, n_words = stored.options, stored.n_words
            self._own_table = opened if embedding_weight_file is None else None
            if mix == "stored":
                mix, do_layer_norm = _stored_mix(opened)
                n_representations = len(mix)
        if mix is not None and (
            isinstance(mix, str) or combine != "mix" or len(mix) != n_representations
        ):
            raise ValueError(
                f"mix is {mix!r} and combine {combine!r}; expected 'stored' and the files of a "
                f"model, or a pair of weights and gamma for each of the {n_representations} "
                "outputs, and combine 'mix'"
            )
        self.n_representations, self.mix = n_representations, mix
        self.do_layer_norm = do_layer_norm
        self.options, self.n_words = options, n_words
        self.bilm = BiLM(options, n_words, padding=True, name="bilm")
        self._start_from(stored)
        normalizes = bool(do_layer_norm) and do_layer_norm != "with_boundaries"
        pairs = list(mix) if mix is not None else [None] * n_representations
        self.mixes = [
            ScalarMix(normalizes, l2_coef, pairs[k], dtype="float32", name=f"mix_{k}")
            for k in range(n_representations)
            if combine == "mix"
        ]
        self.gammas: list = []
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self._states: RowStates | None = None
        self._building = threading.RLock()
        # XLA supports neither strings nor variables that grow. Whether the input is strings is
        # known only in `build`.
        may_read_strings = not options.reads_words and keras.backend.backend() == "tensorflow"
        self.supports_jit = not (may_read_strings or stateful)

    @property
    def trainable(self) -> bool:
        """Whether the layer is trained, and with `trainable_bilm` also the biLM."""
        return super().trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.layers.Layer.trainable.fset(self, value)
        if hasattr(self, "bilm"):
            self.bilm.trainable = bool(value) and self.trainable_bilm

    def _start_from(self, stored: StoredWeights | None) -> None:
        """Initialize the biLM from stored weights, or with NaN if there are none."""
        self._stored = stored
        if stored is None:
            stored_weights.leave_unset(self.bilm)
        else:
            stored.start(self.bilm)

    def build(self, input_shape: Any = None) -> None:
        """Create the variables, with stored values for the biLM; once, in any thread."""
        # Variables that are created inside of a tf.function would be initialized after its tracing,
        # but other threads may use them as soon as `built` is set.
        with self._building, _outside_of_functions():
            if not self.built:
                self._build(input_shape)

    def _build(self, input_shape):
        self.bilm.build()
        if self.stateful:
            self._states = RowStates(self.bilm)
        # Set `trainable` again, now that the sublayers exist. The setter is called directly,
        # because Keras ignores `x.a = x.a`.
        Elmo.trainable.fset(self, self.trainable)
        for mix in self.mixes:
            mix.build((None, self.options.lstm.n_layers + 1, None, None))
        for k in range(self.n_representations if self.combine == "top" else 0):
            kind = dict(initializer="ones", dtype="float32", autocast=False)
            self.gammas.append(self.add_weight(shape=(), name=f"gamma_{k}", **kind))
        if input_shape is not None and len(input_shape) == 3:
            self.supports_jit = not self.stateful
        self.built = True

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the layer: see the class. Raises: DataError also for lists of strings."""
        if any(isinstance(each, str) for each in keras.tree.flatten(inputs)[:1]):
            raise DataError(  # the error of Keras does not name the reason
                f"the inputs are a {type(inputs).__name__} of strings, expected a string tensor: "
                "tf.constant(tokens) (B, T) with '' as padding, or tf.constant(sentences) (B,); "
                "or, on any backend, ids: batcher().batch_sentences(tokens)"
            )
        if isinstance(inputs, keras.KerasTensor):
            _check_type(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Embed tokens: see the class for shapes."""
        layers, mask, _ = self.layers_of(inputs, training)
        outputs = []
        for k in range(self.n_representations):
            vectors = ops.cast(self.combined(layers, mask, k), self.compute_dtype)
            outputs.append(self.dropout(vectors, training=training))
        return outputs[0] if self.n_representations == 1 else outputs

    def layers_of(self, inputs: Any, training: bool | None = None) -> Any:
        """Return layers float (B, layers + 1, T, 2 P), mask (B, T) and token vectors (B, T, P)."""
        ids = self._ids_of(inputs)
        if self._stored is None:
            self._require_weights()
        start = None if self._states is None else self._states.start(ops.shape(ids)[0])
        result = self.bilm(ids, start, training=bool(training) and self.trainable_bilm)
        if self._states is not None:
            self._states.finish(result["state"])
        return self.selected(result)

    def selected(self, result: Mapping[str, Any]) -> Any:
        """Return what `layers_of` returns, from the result of a `BiLM`."""
        layers, vectors = result["layers"], result["token_embeddings"]
        mask = result["mask"]
        if self.do_layer_norm == "with_boundaries":
            layers = normalized(layers, mask)
        if not self.keep_sentence_boundaries:
            layers, vectors = layers[:, :, 1:-1], vectors[:, 1:-1]
            mask = without_marks(mask)
        if not self.trainable_bilm:
            layers = ops.stop_gradient(layers)
        return layers, mask, vectors

    def _require_weights(self) -> None:
        """Raise WeightsError if a layer that was created from a config has no weights yet; on
        TensorFlow in a graph, `tf.errors.InvalidArgumentError` when it runs. Not checked on JAX."""
        bias = min(self.bilm.weights, key=lambda weight: len(weight.shape)).value
        error = WeightsError(f"{self.name}: load the weights of the biLM before the first call")
        if keras.backend.backend() == "tensorflow":
            from bilm.layers.tensorflow.spelling import require

            require(ops.all(ops.isfinite(bias)), error)
        elif keras.backend.backend() == "torch" and not ops.all(ops.isfinite(bias)):
            raise error

    def _ids_of(self, inputs: Any) -> Any:
        """Return the ids of inputs, which are strings or integers.

        Raises: DataError for inputs of another type or shape, or with an id out of range, see the
            class; ValueError for strings if the model reads words.
        """
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        if dtype == "string":
            if (alphabet := alphabet_of(self.options)) is None:
                raise ValueError(
                    "this biLM reads word ids from TokenBatcher; it cannot spell strings"
                )
            from bilm.layers.tensorflow.spelling import spelled, tokens_of

            return spelled(tokens_of(inputs), alphabet)
        _check_type(inputs)
        check_ids_shape(inputs.shape, self.options)
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            if isinstance(inputs, tf.__internal__.EagerTensor):
                check_ids(inputs.numpy(), self.options, self.bilm.n_tokens)
        return ops.cast(inputs, "int64" if dtype in ("int64", "uint32", "uint64") else "int32")

    def compute_mask(self, inputs: Any, previous: Any = None) -> Any:
        """Return the mask of the tokens, boolean (B, T), or a list of one per representation."""
        if keras.backend.standardize_dtype(inputs.dtype) == "string":
            mask = WordMask()(inputs)
            mask = with_marks(mask) if self.keep_sentence_boundaries else mask
        else:
            mask = token_mask(inputs)
            mask = mask if self.keep_sentence_boundaries else without_marks(mask)
        return mask if self.n_representations == 1 else [mask] * self.n_representations

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the shape of the output, or a list of the shapes of all outputs."""
        width = len(self.bilm.directions) * self.options.lstm.projection_dim
        if self.combine == "concat":
            width *= self.options.lstm.n_layers + 1
        n_rows, n_steps = (*input_shape, None)[:2]
        has_marks = len(input_shape) == 3 or self.options.reads_words  # ids, not strings
        if n_steps is not None:
            n_steps += 2 * (self.keep_sentence_boundaries - has_marks)
        shape = n_rows, n_steps, width
        return shape if self.n_representations == 1 else [shape] * self.n_representations

    def batcher(self, lm_vocab_file: str | Path | None = None) -> Batcher | TokenBatcher:
        """Return a batcher that computes the input ids of this layer.

        Raises: DataError, also if the words differ from the word table of the model's files.
        """
        if self._own_table is not None:
            self._own_table.check_words(lm_vocab_file)
        return batcher(self.options, lm_vocab_file)

    def reset_states(self) -> None:
        """Reset the states of all rows to zero; no effect unless the layer is stateful."""
        if self._states is not None:
            self._states.reset()

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, with the content of the options instead of their path."""
        return {
            **super().get_config(),
            "options_file": self.options.to_dict() | {"bidirectional": self.options.bidirectional},
            "dropout": self.dropout.rate,
            **{name: getattr(self, name) for name in ATTRIBUTES},
            "weights_key": self._stored and self._stored.key,  # for copies in this process
        }

    @classmethod
    def from_config(cls, config: Any) -> Any:
        """Create a layer from the result of `get_config`, without opening any file. If this process
        created the original layer and its files are unchanged, the new layer has the same weights.
        Otherwise, load weights before you call it.

        Raises: OptionsError if the options are a path or a URL, or are invalid.
        """
        config = dict(config)
        stored = stored_weights.known(config.pop("weights_key", None))
        options = config.get("options_file")
        if not isinstance(options, Mapping):
            raise unexpected("options_file", options, "the content of an options file")
        ModelOptions.from_dict(options)  # validated first, because Keras would wrap the error
        layer = super().from_config(config)
        if stored is not None:
            layer._start_from(stored)
        return layer

    def __reduce__(self):
        """Pickle or copy the layer including its weights."""
        if not self.built:
            self.build()
        return super().__reduce__()

    def combined(self, layers: Any, mask: Any, k: int = 0) -> Any:
        """Return representation k, 0 outside the mask: float (B, T, width)."""
        if self.combine == "mix":
            vectors = self.mixes[k](layers, mask=mask)
        elif self.combine == "top":
            vectors = self.gammas[k] * layers[:, -1]
        elif self.combine == "average":
            vectors = ops.mean(layers, axis=1)
        else:
            vectors = ops.concatenate([layers[:, j] for j in range(layers.shape[1])], axis=-1)
        return vectors * ops.cast(mask, layers.dtype)[..., None]


@keras.saving.register_keras_serializable(package="bilm")
class WordMask(keras.Operation):
    """The mask of strings that `Elmo` reads, tokens (B, T) or sentences (B,): boolean (B, T)."""

    def call(self, strings: Any) -> Any:
        """Return the places of words."""
        from bilm.layers.tensorflow.spelling import tokens_of

        return ops.not_equal(tokens_of(strings), "")

    def compute_output_spec(self, strings: Any) -> keras.KerasTensor:
        """Return the shape and type of the mask."""
        return keras.KerasTensor((*strings.shape, None)[:2], "bool")


def _check_type(inputs: Any) -> None:
    """Check that inputs are strings or integers. Raises: DataError."""
    dtype = keras.backend.standardize_dtype(inputs.dtype)
    if dtype != "string" and "int" not in dtype:
        raise DataError(
            f"the inputs are {dtype}, expected strings or integer ids; set the type with "
            "keras.Input(shape, dtype=...), also as the first layer of keras.Sequential, or "
            "`input_dtype` of the class of your model"
        )


def _outside_of_functions() -> AbstractContextManager[None]:
    """Lift what is created in the block out of a tf.function; no effect on other backends."""
    if keras.backend.backend() != "tensorflow":
        return nullcontext()
    import tensorflow as tf

    return tf.init_scope()


def _stored_mix(model: StoredModel) -> tuple[list[tuple[list[float], float]], bool | str]:
    """Return the learned mixes of a model and `do_layer_norm`. Raises: WeightsError."""
    if not model.mixes:
        raise WeightsError(f"{model}: contains no learned mix; remove mix='stored'")
    pairs = [([float(weight) for weight in mix.weights], mix.gamma) for mix in model.mixes]
    return pairs, "with_boundaries" if model.mixes[0].do_layer_norm else False


class RowStates:
    """The LSTM states of all rows, carried from call to call by a stateful `Elmo` (TensorFlow)."""

    def __init__(self, bilm: BiLM):
        import tensorflow as tf

        self._bilm = bilm
        zeros = bilm.flatten_state(bilm.zero_state(0))
        self._parts = [tf.Variable(z, shape=(None, z.shape[1]), trainable=False) for z in zeros]

    def start(self, n_rows: Any) -> Any:
        """Return the state of the first `n_rows` rows; new rows start from zero state."""
        starts = []
        for variable in self._parts:
            missing = ops.maximum(n_rows - ops.shape(variable)[0], 0)
            variable.assign(ops.pad(variable, [[0, missing], [0, 0]]))
            starts.append(variable[:n_rows])
        return self._bilm.pack_state(starts)

    def finish(self, state: Any) -> None:
        """Store the final state of the first rows."""
        for variable, last in zip(self._parts, self._bilm.flatten_state(state), strict=True):
            variable.assign(ops.concatenate([last, variable[ops.shape(last)[0] :]], axis=0))

    def reset(self) -> None:
        """Set all rows to zero state."""
        for variable in self._parts:
            variable.assign(variable[:0])
