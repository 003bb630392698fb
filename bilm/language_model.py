"""The biLM: a token encoder, a forward and a backward stack, and a softmax that both use."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from bilm.errors import BilmError
from bilm.layers.functional import dropout as apply_dropout
from bilm.layers.functional import (
    dropout_mask,
    gather_rows,
    token_mask,
)
from bilm.layers.regularization import DropoutSeeds, Regularization
from bilm.layers.sampled_softmax import SampledSoftmax
from bilm.layers.stack import LSTMStack
from bilm.layers.state import LSTMState
from bilm.layers.token_encoder import TokenEncoder, WordEncoder
from bilm.options.model_options import N_CHARACTERS, N_CHARACTERS_WITH_PADDING, ModelOptions
from bilm.precisions import INFERENCE_PRECISIONS


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
            values are float32. With "int8", for a frozen model, the weights of LSTMs, highway
            layers and projections are stored in eight bits for the embedding backend `onnx_int8`,
            which runs stacks and encoder; a softmax and a table of words compute in float32.

    `call` embeds whole sentences; `windows` continues from a state, as in training and perplexity.
    Raises: ValueError if `n_tokens` or `options.bidirectional` is required and missing, or for an
        unknown precision.
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
        _check_eager()
        if n_tokens is None and (softmax or options.reads_words):
            raise ValueError("n_tokens, the vocabulary size, is required for words or a softmax")
        if options.bidirectional is None:
            raise ValueError("options.bidirectional is None; expected True or False")
        self.options, self.n_tokens, self.padding = options, n_tokens, padding
        self.directions = options.directions
        self.regularization = regularization
        if precision not in INFERENCE_PRECISIONS:
            raise ValueError(f"precision is {precision!r}, expected one of {INFERENCE_PRECISIONS}")
        self.precision = precision
        self.encoder = _encoder(options, n_tokens, padding, precision, self.dtype_policy)
        self.stacks = {d: self._make_stack(d, precision) for d in self.directions}
        self.softmax: Any = None
        if softmax and n_tokens is not None:
            width, how = options.lstm.projection_dim, {"dtype": self.dtype_policy}
            products = "float32" if precision == "int8" else precision
            self.softmax = SampledSoftmax(n_tokens, width, products, name="softmax", **how)

    def _make_stack(self, direction: str, precision: str) -> LSTMStack:
        lstm = self.options.lstm
        return LSTMStack(
            lstm.n_layers,
            lstm.dim,
            lstm.projection_dim,
            lstm.cell_clip,
            lstm.proj_clip,
            lstm.use_skip_connections,
            self.regularization.dropout,
            precision,
            self.regularization.variational_dropout,
            dtype=self.dtype_policy,
            name=f"{direction}_stack",
        )

    def build(self, input_shape: Any = None) -> None:
        """Create the variables; the input shape is not needed."""
        self.encoder.build()
        for stack in self.stacks.values():
            stack.build((None, None, self.options.lstm.projection_dim))
        if self.softmax is not None:
            shared = self.options.share_embedding_softmax
            self.softmax.build(self.encoder.embedding if shared else None)
        self.built = True

    def freeze(self) -> None:
        """Make all weights constants, for inference only; call it before `build`.

        The model then has no variables to train or assign. On TensorFlow it stores the weights of
        LSTMs in the fastest layout only; with "bfloat16" they need half the memory.

        Raises: ValueError if the model is built.
        """
        cells = [layer.cell for stack in self.stacks.values() for layer in stack.layers]
        for layer in [self.encoder, *cells, *filter(None, [self.softmax])]:
            layer.freeze()

    def __reduce__(self):
        raise BilmError(
            "a language model in memory cannot be pickled or copied; load its files where it is "
            "needed, or use bilm.ElmoEmbedder or bilm.Elmo, which support both"
        )

    def zero_state(self, batch_size: int) -> dict[str, list[LSTMState]]:
        """Return the zero state: for each direction, one `LSTMState` per layer."""
        return {name: stack.zero_state(batch_size) for name, stack in self.stacks.items()}

    def flatten_state(self, state: Any) -> list:
        """Return a state's tensors as a list: by direction, layer, cell before hidden."""
        return [part for name in self.directions for layer in state[name] for part in layer]

    def pack_state(self, tensors: Any) -> dict[str, list[LSTMState]]:
        """Return the state from the result of `flatten_state`."""
        parts = iter(tensors)
        n_layers = range(self.options.lstm.n_layers)
        return {d: [LSTMState(next(parts), next(parts)) for _ in n_layers] for d in self.directions}

    def encode(
        self,
        batch: dict[str, Any],
        seeds: DropoutSeeds = DropoutSeeds(),  # noqa: B008 (it cannot be changed)
    ) -> dict[str, Any]:
        """Encode each distinct token of a window once, and copy its vector to its positions.

        Args:
            batch: `distinct` and `places`: see `bilm.data.windows.model_batch`.
            seeds: `tokens` is the seed of embedding dropout, None for no dropout. A token that is
                dropped has a zero vector at all of its positions, in both directions; the other
                vectors are divided by 1 - rate (Merity et al. 2018, arXiv:1708.02182).
        Returns: for each direction token vectors float (B, T, P).
        """
        distinct, words = batch["distinct"], self.options.reads_words
        table = self.encoder(distinct) if words else self.encoder.encode_groups(distinct)
        if seeds.tokens is not None:
            rate, shape = self.regularization.embedding_dropout, (ops.shape(table)[0], 1)
            table = apply_dropout(table, rate, dropout_mask(shape, rate, seeds.tokens))
        return {d: gather_rows(table, places) for d, places in batch["places"].items()}

    def windows(
        self,
        vectors: Any,
        state: Any,
        mask: Any = None,
        dropout_seeds: Any = None,
        training: bool | None = None,
        fresh: Any = None,
    ) -> Any:
        """Run the directions of `vectors` over a window of text from a state.

        Args:
            vectors: for each direction, or for one of them, in its reading order, token vectors
                float (B, T, P).
            state: the initial state, such as `zero_state`.
            mask: boolean (B, T) or None, for both directions.
            dropout_seeds: for each direction an integer seed (2,); None for no dropout.
            training: whether a gradient will be requested.
            fresh: boolean (B, T) or None, the steps at which a row starts from zero state (not in
                training).
        Returns: for each direction a list of outputs float (B, T, P), one per layer and, with
            dropout, the last one after its dropout; and the last state.
        """
        return self._run(vectors, state, mask, dropout_seeds, training, reverse=(), fresh=fresh)

    def losses(self, outputs: Any, targets: Any, negatives: Any = None) -> dict[str, Any]:
        """Return the negative log-probability of each target, in nats.

        Args:
            outputs: the outputs of `windows`.
            targets: for each direction the next tokens, integer (B, T).
            negatives: for each direction `Negatives` for the sampled loss; None for the full loss.
        Returns: for each direction float (B, T).
        """
        losses = {}
        for name in outputs:
            loss = self.softmax(
                ops.reshape(outputs[name][-1], (-1, self.options.lstm.projection_dim)),
                ops.reshape(targets[name], (-1,)),
                None if negatives is None else negatives[name],
            )
            losses[name] = ops.reshape(loss, ops.shape(targets[name]))
        return losses

    def call(
        self, ids: Any, state: Any = None, training: bool | None = None, vectors: Any = None
    ) -> Any:
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
        vectors = self.encoder(ids) if vectors is None else vectors
        if state is None:
            state = self.zero_state(ops.shape(ids)[0])
        both = dict.fromkeys(self.directions, vectors)
        outputs, state = self._run(both, state, mask, None, training, reverse=("backward",))
        layers = [ops.concatenate([vectors] * len(self.directions), axis=-1)]
        for i in range(self.options.lstm.n_layers):
            layers.append(ops.concatenate([outputs[name][i] for name in self.directions], axis=-1))
        return {
            "layers": ops.stack(layers, axis=1),
            "token_embeddings": vectors,
            "mask": mask,
            "state": state,
        }

    def _run(self, vectors, state, mask, dropout_seeds, training, reverse, fresh=None):
        outputs, last = {}, {}
        for name in vectors:
            layers, last[name] = self.stacks[name](
                ops.transpose(vectors[name], (1, 0, 2)),
                state[name],
                steps_mask=_time_first(mask),
                fresh=_time_first(fresh),
                reverse=name in reverse,
                dropout_seed=None if dropout_seeds is None else dropout_seeds[name],
                training=training,
            )
            outputs[name] = [ops.transpose(layer, (1, 0, 2)) for layer in layers]
        return outputs, last


def _time_first(mask):
    """Swap the axes of a boolean (B, T), as float: oneDNN logs that it cannot do booleans."""
    return None if mask is None else ops.transpose(ops.where(mask, 1.0, 0.0)) > 0


def _encoder(
    options: ModelOptions, n_tokens: int | None, padding: bool, precision: str, dtype: Any
) -> TokenEncoder | WordEncoder:
    """Return the token encoder; with padding each of its tables has one more row."""
    width, how = options.lstm.projection_dim, {"dtype": dtype, "name": "encoder"}
    cnn, lexicons = options.char_cnn, options.lexicon_encoder
    if cnn is not None:
        n_characters = N_CHARACTERS_WITH_PADDING if padding else N_CHARACTERS
        shape = n_characters, cnn.embedding.dim, cnn.filters, cnn.activation, cnn.n_highway
        return TokenEncoder(width, *shape, precision, **how)
    if lexicons is None:
        return WordEncoder(width, (n_tokens or 0) + padding, **how)
    words, characters = lexicons.words, lexicons.characters
    has_cnn = characters is not None
    return TokenEncoder(
        width,
        characters.n_rows + padding if characters is not None else 0,
        characters.dim if characters is not None else 0,
        (lexicons.filters or ()) if has_cnn else (),
        lexicons.activation,
        lexicons.n_highway if has_cnn else 0,
        precision,
        words=None if words is None else (words.n_rows + padding, words.dim),
        always_projects=True,
        **how,
    )


def _check_eager() -> None:
    """Check that TensorFlow executes eagerly outside functions. Raises: BilmError."""
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise BilmError(
            "TensorFlow runs in the mode of version 1, which models do not support: remove "
            "disable_eager_execution, disable_v2_behavior or `with tf.Graph().as_default()` from "
            "the program"
        )
