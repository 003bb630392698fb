"""The biLM: a token encoder, a forward and a backward stack, and a softmax that both use."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import keras
from keras import ops, tree

from bilm.errors import BilmError
from bilm.layers.char_cnn import CharacterCNN
from bilm.layers.functional import dropout, gather_rows, token_mask
from bilm.layers.lstm import LSTMCell
from bilm.layers.lstm_equation import LSTMState
from bilm.layers.sampled_softmax import Negatives, SampledSoftmax
from bilm.layers.stack import DropoutSeeds, LSTMStack, Regularization
from bilm.layers.token_encoder import Highway, TokenEncoder, WordEncoder
from bilm.layers.types import Shape, State, Tensor
from bilm.layers.weighted import WeightedLayer
from bilm.options.model_options import ModelOptions
from bilm.precisions import PRECISIONS
from bilm.support.process import note_computing
from bilm.tensors import LAYERS, TensorSpec, tensors_of


class BiLM(keras.layers.Layer):
    """A language model in one or two directions; the same graph trains, measures and embeds.

    Args:
        options: the sizes of the model; `bidirectional` must not be None.
        n_tokens: vocabulary size, without padding; required for the softmax and for word input.
        padding: whether id 0 is padding and other ids are shifted by one (embedding: `Batcher`),
            or ids are those of the vocabulary (training, perplexity).
        softmax: whether the model has its output layer (training, perplexity, scoring).
        regularization: settings of training, which apply where seeds or masks are passed.
        precision: dtype of the matrix-multiplication inputs: "float32" or "bfloat16". All other
            values are float32.

    `call` embeds whole sentences; `windows` continues from a state, as in training and perplexity.
    Raises: ValueError for an unknown precision, or if `n_tokens` or `bidirectional` is missing.
    Reference: Peters et al. 2018, arXiv:1802.05365.
    """

    def __init__(
        self,
        options: ModelOptions,
        n_tokens: int | None = None,
        padding: bool = False,
        softmax: bool = False,
        regularization: Regularization = Regularization(),  # noqa: B008 (it cannot be changed)
        precision: str = "float32",
        **kwargs: Any,
    ):
        # Independent of the Keras policy, since states are sums over long sequences.
        super().__init__(**{"dtype": "float32", **kwargs})
        note_computing()
        _check_eager()
        if n_tokens is None and (softmax or options.reads_words):
            raise ValueError("n_tokens, the vocabulary size, is required for words or a softmax")
        if options.bidirectional is None:
            raise ValueError("options.bidirectional is None; expected True or False")
        if precision not in PRECISIONS:
            raise ValueError(f"precision is {precision!r}, expected one of {PRECISIONS}")
        self.options = options
        self.n_tokens = n_tokens
        self.padding = padding
        self.directions = options.directions
        self.regularization = regularization
        self.precision = precision

        how = {"precision": precision, "dtype": self.dtype_policy}  # of all layers
        self.encoder = self._make_encoder(how)
        self.stacks = {direction: self._make_stack(direction, how) for direction in self.directions}
        self.softmax: SampledSoftmax | None = None
        if softmax and n_tokens is not None:
            width = options.lstm.projection_dim
            self.softmax = SampledSoftmax(n_tokens, width, name="softmax", **how)

    def _make_encoder(self, how: dict[str, Any]) -> TokenEncoder | WordEncoder:
        """Return the token encoder; with padding each of its tables has one more row."""
        width = self.options.lstm.projection_dim
        encoder = self.options.encoder
        if encoder is None:
            n_words = (self.n_tokens or 0) + self.padding
            return WordEncoder(width, n_words, name="encoder", **how)

        words, characters = encoder.words, encoder.characters
        cnn = None
        highway = None
        if characters is not None:
            cnn = CharacterCNN(
                characters.n_rows + self.padding,
                characters.dim,
                self.options.filters,
                encoder.activation,
                name="cnn",
                **how,
            )
            highway = Highway(encoder.n_highway, name="highway", **how)
        return TokenEncoder(
            width,
            cnn,
            highway,
            (words.n_rows + self.padding, words.dim) if words else None,
            always_projects=self.options.lexicon_encoder is not None,
            name="encoder",
            **how,
        )

    def _make_stack(self, direction: str, how: dict[str, Any]) -> LSTMStack:
        lstm = self.options.lstm
        sizes = lstm.dim, lstm.projection_dim, lstm.cell_clip, lstm.proj_clip
        cells = [LSTMCell(*sizes, name="cell", **how) for _ in range(lstm.n_layers)]
        name = f"{direction}_stack"
        return LSTMStack(cells, lstm.use_skip_connections, self.regularization, name=name)

    def specs(self) -> dict[str, TensorSpec]:
        """Return the tensors of the model, which need not be built, by name and in its order."""
        specs = tensors_of(self.options, self.n_tokens, has_softmax=self.softmax is not None)
        return {spec.name: spec for spec in specs}

    def layer_of(self, spec: TensorSpec) -> WeightedLayer:
        """Return the layer that contains a tensor."""
        if spec.part in LAYERS:
            return attrgetter(LAYERS[spec.part])(self)
        return self.stacks[self.directions[spec.k]].layers[spec.i].cell

    def stored_variables(self) -> dict[str, Any]:
        """Return the variables of a built model by stored name, in the order of the graph. Their
        values are those in files, except the row of padding, which files do not have."""
        specs = self.specs().items()
        return {name: self.layer_of(spec).own_weight(spec.attribute) for name, spec in specs}

    def build(self, input_shape: Shape | None = None) -> None:
        """Create the variables, for any input shape."""
        self.encoder.build()
        for stack in self.stacks.values():
            stack.build((None, None, self.options.lstm.projection_dim))
        if self.softmax is not None:
            shared = self.options.share_embedding_softmax
            self.softmax.build(self.encoder.embedding if shared else None)
        self.built = True

    def __reduce__(self):
        raise BilmError(
            "a language model in memory cannot be pickled or copied; load its files where it is "
            "needed, or use bilm.ElmoEmbedder or bilm.Elmo, which support both"
        )

    def zero_state(self, batch_size: int | Tensor) -> State:
        """Return the zero state of `batch_size` rows."""
        return tree.flatten([self.stacks[d].zero_state(batch_size) for d in self.directions])

    def encode(
        self,
        batch: Mapping[str, Any],
        seeds: DropoutSeeds = DropoutSeeds(),  # noqa: B008 (it cannot be changed)
    ) -> dict[str, Tensor]:
        """Encode each distinct token of a window once, and copy its vector to its positions: see
        `bilm.data.windows.model_batch`. Return for each direction token vectors float (B, T, P).

        With a seed `tokens`, embedding dropout sets the vectors of a dropped token to zero at all
        of its positions, and divides others by 1 - rate (Merity et al. 2018, arXiv:1708.02182).
        """
        distinct = batch["distinct"]
        if isinstance(self.encoder, WordEncoder):
            table = self.encoder(distinct)  # U, P
        else:
            table = self.encoder.encode_groups(distinct)

        if seeds.tokens is not None:
            rate = self.regularization.embedding_dropout
            table = dropout(table, rate, seeds.tokens, (ops.shape(table)[0], 1))
        return {d: gather_rows(table, places) for d, places in batch["places"].items()}

    def windows(
        self,
        vectors: Mapping[str, Tensor],
        state: State,
        mask: Tensor | None = None,
        dropout_seeds: Mapping[str, Tensor] | None = None,
        training: bool | None = None,
        fresh: Tensor | None = None,
        reverse: Sequence[str] = (),
    ) -> tuple[dict[str, list[Tensor]], State]:
        """Run each direction over its `vectors`, float (B, T, P), a window of text, from a state.

        Args:
            mask: boolean (B, T) or None, for both directions.
            dropout_seeds: for each direction an integer seed (2,).
            training: whether a gradient will be requested.
            fresh: boolean (B, T) or None, steps at which rows start from zero state (no training).
            reverse: directions whose vectors are in the order of the text, read from the end.
        Returns: for each direction the outputs of `LSTMStack`, float (B, T, P); and the last state.
        """
        outputs = {}
        last: State = []
        n_tensors = 2 * self.options.lstm.n_layers  # of a direction's state
        for k, direction in enumerate(self.directions):
            first = k * n_tensors
            places = range(first, first + n_tensors, 2)
            layers, states = self.stacks[direction](
                ops.transpose(vectors[direction], (1, 0, 2)),  # T, B, P
                [LSTMState(*state[i : i + 2]) for i in places],
                steps_mask=_time_first(mask),
                fresh=_time_first(fresh),
                reverse=direction in reverse,
                dropout_seed=None if dropout_seeds is None else dropout_seeds[direction],
                training=training,
            )
            outputs[direction] = [ops.transpose(layer, (1, 0, 2)) for layer in layers]
            last += tree.flatten(states)
        return outputs, last

    def losses(
        self,
        outputs: Mapping[str, Sequence[Tensor]],
        targets: Mapping[str, Tensor],
        negatives: Mapping[str, Negatives] | None = None,
    ) -> dict[str, Tensor]:
        """Return the negative log-probability of each target, in nats, by direction: outputs of
        `windows`, targets integer (B, T) -> float (B, T); with `negatives`, the sampled loss."""
        assert self.softmax is not None
        losses = {}
        for direction, layers in outputs.items():
            loss = self.softmax(
                ops.reshape(layers[-1], (-1, self.options.lstm.projection_dim)),  # B T, P
                ops.reshape(targets[direction], (-1,)),  # B T
                None if negatives is None else negatives[direction],
            )
            losses[direction] = ops.reshape(loss, ops.shape(targets[direction]))  # B, T
        return losses

    def call(
        self,
        ids: Tensor,
        state: State | None = None,
        training: bool | None = None,
        vectors: Tensor | None = None,
    ) -> dict[str, Any]:
        """Run over whole sentences with their marks: see `Batcher`.

        Args:
            ids: characters integer (B, T, C), or words or cached token vectors (B, T); 0 is
                padding, anywhere in a row. Both directions skip it.
            state: the initial state; None for zero state.
            vectors: float (B, T, P), the result of `encoder` for `ids`; None to encode them here.
        Returns: dict of `layers` float (B, layers + 1, T, 2 P), where layer 0 is the vector of the
            token twice; `token_embeddings` float (B, T, P); `mask` boolean (B, T); and `state`. A
            forward-only model has P instead of 2 P. Values at padding are undefined.
        """
        mask = token_mask(ids)
        vectors = self.encoder(ids) if vectors is None else vectors  # B, T, P
        if state is None:
            state = self.zero_state(ops.shape(ids)[0])
        both = dict.fromkeys(self.directions, vectors)
        outputs, state = self.windows(both, state, mask, training=training, reverse=("backward",))

        layers = [ops.concatenate([vectors] * len(self.directions), axis=-1)]  # B, T, 2 P
        for i in range(self.options.lstm.n_layers):
            layers.append(ops.concatenate([outputs[d][i] for d in self.directions], axis=-1))
        return {
            "layers": ops.stack(layers, axis=1),
            "token_embeddings": vectors,
            "mask": mask,
            "state": state,
        }


def _time_first(mask):
    """Swap the axes of a boolean (B, T), as float: oneDNN logs that it cannot do booleans."""
    return None if mask is None else ops.transpose(ops.where(mask, 1.0, 0.0)) > 0


def _check_eager() -> None:
    """Raise BilmError in TensorFlow's mode of version 1."""
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise BilmError(
            "TensorFlow runs in the mode of version 1, which models do not support: remove "
            "disable_eager_execution, disable_v2_behavior or `with tf.Graph().as_default()` from "
            "the program"
        )
