"""`Elmo`, a Keras layer that returns one context-dependent vector per token."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import keras
from keras import ops

from bilm.data.model_ids import Batcher, TokenBatcher, batcher
from bilm.elmo.inputs import WordMask, check_inputs, ids_of, is_string
from bilm.elmo.row_states import RowStates
from bilm.errors import WeightsError, require_one_of
from bilm.language_model import BiLM
from bilm.layers.functional import token_mask, with_marks, without_marks
from bilm.layers.scalar_mix import ScalarMix, normalized
from bilm.layers.types import Shape, Tensor
from bilm.options.model_options import ModelOptions
from bilm.options.schema import unexpected
from bilm.storage.stored_model import StoredModel, open_model
from bilm.storage.stored_weights import StoredWeights, known_weights
from bilm.support.process import note_computing

COMBINATIONS = ("mix", "top", "average", "concat", "stored")
WITH_BOUNDARIES = "with_boundaries"  # a value of `do_layer_norm`
SAVED_ARGUMENTS = (  # those that a config contains unchanged
    "n_representations", "combine", "do_layer_norm", "l2_coef", "trainable_bilm",
    "keep_sentence_boundaries", "stateful",
)  # fmt: skip
MixStart = tuple[Sequence[float], float]  # initial weights of the layers before softmax, and gamma


@keras.saving.register_keras_serializable(package="bilm")
class Elmo(keras.layers.Layer):
    """gamma * sum_j softmax(w)_j * layer_j over the layers of a stored biLM.

    Args:
        options_file: path of `options.json`; or the folder, archive, URL or name of a model (see
            `open_model`); or the weights of another layer, for `from_config`.
        weight_file: the HDF5 file with the weights, if `options_file` is a single file.
        n_representations: number of outputs, each with its own weights; None for one. The paper
            uses one at the input of the task network and one at its output.
        combine: `mix` learns w and gamma, which start as the mean of the layers; `stored` starts
            from the mixes that the model's files contain (AllenNLP and TensorFlow Hub), with
            their number and normalization; `top` returns gamma times the last layer; `average`
            returns the mean of the layers; `concat` concatenates the layers.
        do_layer_norm: normalize the layers before mixing, over the whole batch, on which the
            vectors of a sentence then depend. "with_boundaries" includes the marks of sentences in
            mean and variance, as AllenNLP does.
        l2_coef: weight of the penalty l2_coef * sum w^2, which is added to the losses of the model.
        dropout: dropout rate on the output, in training.
        trainable_bilm: whether to train the biLM in addition to w and gamma.
        keep_sentence_boundaries: whether to return the vectors of the marks of a sentence, too.
        stateful: whether to start each row from the final state of the previous call, as the
            reference does; vectors then depend on earlier calls. TensorFlow only.
        embedding_weight_file: HDF5 file with `embedding` (V, P), cached token vectors from
            `dump_token_embeddings`; the layer then reads word ids.

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
        are 0. Each output has a Keras mask. In rows of ids, the first and the last position that is
        not padding contain the marks.
    Raises: OptionsError, WeightsError; ValueError for invalid or contradicting arguments.
    Reference: Peters et al. 2018, arXiv:1802.05365.

    Example:
        tokens = keras.Input((None,), dtype="string")
        vectors = bilm.Elmo("options.json", "weights.hdf5", l2_coef=1e-3, dropout=0.5)(tokens)
    """

    built: bool  # of Keras' layers

    def __init__(
        self,
        options_file: str | Path | StoredModel | StoredWeights,
        weight_file: str | Path | None = None,
        n_representations: int | None = None,
        combine: str = "mix",
        do_layer_norm: bool | str = False,
        l2_coef: float | None = None,
        dropout: float = 0.0,
        trainable_bilm: bool = False,
        keep_sentence_boundaries: bool = False,
        stateful: bool = False,
        embedding_weight_file: str | Path | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        require_one_of("combine", combine, COMBINATIONS)
        require_one_of("do_layer_norm", do_layer_norm, (True, False, WITH_BOUNDARIES))
        if combine == "stored" and (n_representations is not None or do_layer_norm):
            raise ValueError(
                "combine is 'stored', which takes the number of outputs and their normalization "
                "from the model's files; remove n_representations and do_layer_norm"
            )
        if stateful and keras.backend.backend() != "tensorflow":
            raise ValueError("stateful=True requires the TensorFlow backend of Keras")

        # The biLM.
        if isinstance(options_file, StoredWeights):
            model = None
            self._weights = options_file
        else:
            model = open_model(options_file, weight_file)
            reads_table = embedding_weight_file is not None
            self._weights = model.weights(reads_table, embedding_weight_file)
        self.options = self._weights.options
        self.n_words = self._weights.n_words
        self.bilm = BiLM(self.options, self.n_words, padding=True, name="bilm")
        self._weights.start(self.bilm)
        # The model with whose words `batcher` compares a vocabulary; None for another word table.
        self._word_table_of = model if embedding_weight_file is None else None

        # The outputs, whose variables `build` creates.
        starts: Sequence[MixStart | None] = [None] * (n_representations or 1)
        if combine == "stored":
            if model is None or not model.mixes:
                raise WeightsError(f"{model}: contains no learned mix; remove combine='stored'")
            starts = [(mix.weights.tolist(), mix.gamma) for mix in model.mixes]
            do_layer_norm = WITH_BOUNDARIES if model.mixes[0].do_layer_norm else False
            combine = "mix"
        self.combine, self.n_representations = combine, len(starts)
        self.do_layer_norm, self.l2_coef = do_layer_norm, l2_coef
        self.keep_sentence_boundaries = keep_sentence_boundaries
        mix_normalizes = bool(do_layer_norm) and do_layer_norm != WITH_BOUNDARIES
        self.mixes = []
        for k, start in enumerate(starts if combine == "mix" else []):
            mix = ScalarMix(mix_normalizes, l2_coef, start, dtype="float32", name=f"mix_{k}")
            self.mixes.append(mix)
        self.gammas: list[keras.Variable] = []  # of `top`
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

        self.trainable_bilm = trainable_bilm
        self.stateful = stateful
        self._states: RowStates | None = None
        self._building = threading.RLock()
        self.supports_masking = True
        self.supports_jit = self._is_compilable()

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor | list[Tensor]:
        """Embed tokens: see the class for shapes."""
        layers, mask, _ = self.layers_of(inputs, training)
        outputs = []
        for k in range(self.n_representations):
            vectors = ops.cast(self.combined(layers, mask, k), self.compute_dtype)
            outputs.append(self.dropout(vectors, training=training))
        return outputs[0] if self.n_representations == 1 else outputs

    def layers_of(
        self, inputs: Tensor, training: bool | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the layers of the biLM, float (B, layers + 1, T, 2 P); the mask, boolean (B, T);
        and the token vectors, float (B, T, P). T includes marks that are returned."""
        ids = ids_of(inputs, self.options, self.n_words)  # B, T + 2 (, C)
        self._weights.require_values(self.bilm, self.name)

        # The biLM, from the states of the previous call if the layer is stateful.
        start = None if self._states is None else self._states.start(ops.shape(ids)[0])
        result = self.bilm(ids, start, training=bool(training) and self.trainable_bilm)
        if self._states is not None:
            self._states.finish(result["state"])

        # Its results, with or without the marks of sentences.
        layers = result["layers"]  # B, layers + 1, T + 2, 2 P
        mask, vectors = result["mask"], result["token_embeddings"]  # B, T + 2 and B, T + 2, P
        if self.do_layer_norm == WITH_BOUNDARIES:
            layers = normalized(layers, mask)
        if not self.keep_sentence_boundaries:
            layers, vectors = layers[:, :, 1:-1], vectors[:, 1:-1]
            mask = without_marks(mask)
        if not self.trainable_bilm:
            layers = ops.stop_gradient(layers)
        return layers, mask, vectors

    def combined(self, layers: Tensor, mask: Tensor, k: int = 0) -> Tensor:
        """Return output k of the results of `layers_of`, 0 outside the mask: (B, T, width)."""
        if self.combine == "mix":
            vectors = self.mixes[k](layers, mask=mask)  # B, T, 2 P
        elif self.combine == "top":
            vectors = self.gammas[k] * layers[:, -1]
        elif self.combine == "average":
            vectors = ops.mean(layers, axis=1)
        else:
            vectors = ops.concatenate(ops.unstack(layers, axis=1), axis=-1)
        return vectors * ops.cast(mask, layers.dtype)[..., None]

    def reset_states(self) -> None:
        """Reset the states of all rows of a stateful layer to zero."""
        if self._states is not None:
            self._states.reset()

    def batcher(self, lm_vocab_file: str | Path | None = None) -> Batcher | TokenBatcher:
        """Return a batcher that computes the input ids of this layer. Raises: DataError, also if
        the words differ from the word table of the model's files."""
        if self._word_table_of is not None:
            self._word_table_of.check_words(lm_vocab_file)
        return batcher(self.options, lm_vocab_file)

    # --- the interface of Keras layers ---

    def __call__(self, inputs: Tensor, *args: Any, **kwargs: Any) -> Tensor | list[Tensor]:
        """Call the layer: see the class. Raises: DataError also for lists of strings; BilmError
        after a fork: see `bilm.support.process`."""
        note_computing()
        check_inputs(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def build(self, input_shape: Shape | None = None) -> None:
        """Create the variables, with stored values for the biLM; once, in any thread."""
        # Variables that are created inside of a tf.function would be initialized after its tracing,
        # but other threads may use them as soon as `built` is set.
        with self._building, _outside_of_functions():
            if not self.built:
                self._build(input_shape)

    def _build(self, input_shape: Shape | None) -> None:
        self.bilm.build()
        for mix in self.mixes:
            mix.build((None, self.options.lstm.n_layers + 1, None, None))
        if self.combine == "top":
            for k in range(self.n_representations):
                gamma = self.add_weight((), "ones", "float32", autocast=False, name=f"gamma_{k}")
                self.gammas.append(gamma)
        if self.stateful:
            self._states = RowStates(self.bilm)

        # Once more, now that the sublayers exist. Keras ignores `x.trainable = x.trainable`.
        self._set_trainable(self.trainable)
        self.supports_jit = self._is_compilable(input_shape)
        self.built = True

    def _set_trainable(self, value: bool) -> None:
        keras.layers.Layer.trainable.fset(self, value)
        self.bilm.trainable = bool(value) and self.trainable_bilm

    # Whether the layer is trained, and with `trainable_bilm` also the biLM.
    trainable = property(keras.layers.Layer.trainable.fget, _set_trainable)

    def _is_compilable(self, input_shape: Shape | None = None) -> bool:
        """Return whether XLA can compile the layer: not if it is stateful or may read strings."""
        has_strings = keras.backend.backend() == "tensorflow" and not self.options.reads_words
        is_characters = input_shape is not None and len(input_shape) == 3
        return not self.stateful and (is_characters or not has_strings)

    def compute_mask(self, inputs: Tensor, previous: object = None) -> Tensor | list[Tensor]:
        """Return the mask of the tokens, boolean (B, T), or a list of one per representation."""
        if is_string(inputs):
            words = WordMask()(inputs)  # B, T
            mask = with_marks(words) if self.keep_sentence_boundaries else words
        else:
            tokens = token_mask(inputs)  # B, T + 2
            mask = tokens if self.keep_sentence_boundaries else without_marks(tokens)
        return self._per_representation(mask)

    def compute_output_shape(self, input_shape: Shape) -> Shape | list[Shape]:
        """Return the shape of the output, or a list of the shapes of all outputs."""
        width = len(self.bilm.directions) * self.options.lstm.projection_dim
        if self.combine == "concat":
            width *= self.options.lstm.n_layers + 1
        n_rows, n_steps = (*input_shape, None)[:2]
        is_ids = len(input_shape) == 3 or self.options.reads_words
        if n_steps is not None and is_ids != self.keep_sentence_boundaries:
            n_steps += -2 if is_ids else 2  # ids contain the marks, strings do not
        return self._per_representation((n_rows, n_steps, width))

    def _per_representation(self, value: Tensor | Shape) -> Any:
        return value if self.n_representations == 1 else [value] * self.n_representations

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, with the content of the options instead of their path."""
        options = self.options.to_dict() | {"bidirectional": self.options.bidirectional}
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in SAVED_ARGUMENTS},
            "dropout": self.dropout.rate,
            "options_file": options,
            "n_words": self.n_words,
            "mix": [mix.start for mix in self.mixes],
            "weights_key": self._weights.remember(),  # for copies in this process
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> keras.layers.Layer:
        """Create a layer from the result of `get_config`, without opening any file. It has the
        weights of the original layer if this process created it and its files are unchanged.
        Otherwise, load weights before you call it. Raises: OptionsError for other options."""
        config = dict(config)
        starts = config.pop("mix", None)
        known = known_weights(config.pop("weights_key", None))
        content, n_words = config.pop("options_file", None), config.pop("n_words", None)
        # The options are read first, because Keras would wrap the error.
        if not isinstance(content, Mapping):
            raise unexpected("options_file", content, "the content of an options file")
        unset = StoredWeights(ModelOptions.from_dict(content), n_words, sources=[])

        layer = super().from_config({**config, "options_file": known or unset})
        for mix, start in zip(layer.mixes, starts or [], strict=bool(starts)):
            mix.start = start
        return layer

    def __reduce__(self):
        """Pickle or copy the layer including its weights."""
        if not self.built:
            self.build()
        return super().__reduce__()


def _outside_of_functions() -> AbstractContextManager[None]:
    """Lift what is created in the block out of a tf.function; no effect on other backends."""
    if keras.backend.backend() != "tensorflow":
        return nullcontext()
    import tensorflow as tf

    return tf.init_scope()
