"""The biLM: one token encoder, a forward and a backward stack, and the softmax they share."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from bilm.errors import BilmError
from bilm.layers.functional import gather_rows
from bilm.layers.sampled_softmax import SampledSoftmax
from bilm.layers.stack import LSTMStack
from bilm.layers.state import LSTMState, TableRows
from bilm.layers.token_encoder import TokenEncoder, WordEncoder
from bilm.options import N_CHARACTERS, N_CHARACTERS_WITH_PADDING, ModelOptions


class BiLM(keras.layers.Layer):
    """A language model in one or two directions; the same graph trains, measures and embeds.

    Args:
        options: what shapes the model; `bidirectional` must be known.
        n_tokens: vocabulary size, without padding; needed for the softmax and for word input.
        padding: whether id 0 is padding and every other id is shifted by one, as `Batcher` gives
            it (embedding), or ids are the vocabulary's own (training, perplexity).
        softmax: whether the model has its output layer (training, perplexity, scoring).
        dropout: rate, in force where a seed is passed.
        precision: of the operands of products, `float32` or `bfloat16`; all else is in float32.

    `call` embeds whole sentences; `windows` runs on from a state, as training and perplexity do.
    Raises: ValueError where `n_tokens` or `bidirectional` is needed and not given.
    Reference: Peters et al. 2018, arXiv:1802.05365.
    """

    def __init__(
        self,
        options: ModelOptions,
        n_tokens: int | None = None,
        padding: bool = False,
        softmax: bool = False,
        dropout: float = 0.0,
        precision: str = "float32",
        **kwargs: Any,
    ):
        # Whatever Keras' policy: states are sums over long sequences; `precision` rules products.
        super().__init__(**{"dtype": "float32", **kwargs})
        _check_eager()
        if n_tokens is None and (softmax or options.reads_words):
            raise ValueError("n_tokens, the vocabulary size, is needed for word input or softmax")
        if options.bidirectional is None:
            raise ValueError("options.bidirectional is None: say whether there is a backward stack")
        self.options, self.n_tokens, self.padding = options, n_tokens, padding
        self.directions = options.directions
        self.encoder = _encoder(options, n_tokens, padding, precision, self.dtype_policy)
        self.stacks = {d: self._make_stack(d, dropout, precision) for d in self.directions}
        self.softmax = None
        if softmax:
            width, how = options.lstm.projection_dim, {"dtype": self.dtype_policy}
            self.softmax = SampledSoftmax(n_tokens, width, precision, name="softmax", **how)

    def _make_stack(self, direction: str, dropout: float, precision: str) -> LSTMStack:
        lstm = self.options.lstm
        return LSTMStack(
            lstm.n_layers,
            lstm.dim,
            lstm.projection_dim,
            lstm.cell_clip,
            lstm.proj_clip,
            lstm.use_skip_connections,
            dropout,
            precision,
            dtype=self.dtype_policy,
            name=f"{direction}_stack",
        )

    def build(self, input_shape: Any = None) -> None:
        """Make every variable; no shape of an input is needed."""
        self.encoder.build()
        for stack in self.stacks.values():
            stack.build((None, None, self.options.lstm.projection_dim))
        if self.softmax is not None:
            shared = self.options.share_embedding_softmax
            self.softmax.build(self.encoder.embedding if shared else None)
        self.built = True

    def freeze(self) -> None:
        """Make all weights constants, for inference alone; call it before `build`.

        The model then has no variables: nothing trains or assigns its weights. On TensorFlow it
        keeps those of LSTMs in the layout in which products are fastest, and in no other; with
        `bfloat16` they take half the memory.

        Raises: ValueError if the model is built already.
        """
        cells = [layer.cell for stack in self.stacks.values() for layer in stack.layers]
        for layer in [self.encoder, *cells, *filter(None, [self.softmax])]:
            layer.freeze()

    def __reduce__(self):
        raise BilmError(
            "a language model in memory is neither pickled nor copied; load its files where it is "
            "needed, or take bilm.ElmoEmbedder or bilm.Elmo, which can be"
        )

    def zero_state(self, batch_size: int) -> dict[str, list[LSTMState]]:
        """Return the state of a fresh start: for each direction, one `LSTMState` a layer."""
        return {name: stack.zero_state(batch_size) for name, stack in self.stacks.items()}

    def flatten_state(self, state: Any) -> list:
        """Return a state's tensors as a list: by direction, layer, cell before hidden."""
        return [part for name in self.directions for layer in state[name] for part in layer]

    def pack_state(self, tensors: Any) -> dict[str, list[LSTMState]]:
        """Return the state of which `flatten_state` gave the tensors."""
        parts = iter(tensors)
        n_layers = range(self.options.lstm.n_layers)
        return {d: [LSTMState(next(parts), next(parts)) for _ in n_layers] for d in self.directions}

    def encode(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Encode a window's distinct tokens once, and copy each vector to its positions.

        Args:
            batch: `distinct` and `places` as `bilm.data.windows.model_batch` returns them.
        Returns: for each direction token vectors float (B, T, P).
        """
        distinct = batch["distinct"]
        words = self.options.reads_words
        table = self.encoder(distinct) if words else self.encoder.encode_groups(distinct)
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
        """Run every direction on from `state` over a window of text already in its own order.

        Args:
            vectors: for each direction, token vectors float (B, T, P), or `TableRows` with places
                (B, T), where a few vectors stand in many places; not while training.
            state: as `zero_state` gives it.
            mask: boolean (B, T) or None, the same for both directions.
            dropout_seeds: for each direction an integer seed (2,), or None for no dropout.
            training: whether a gradient will be requested.
            fresh: boolean (B, T) or None, rows that start from zero state at a step; not while
                training.
        Returns: for each direction a list of outputs float (B, T, P), layer by layer, and state.
        """
        return self._run(vectors, state, mask, dropout_seeds, training, reverse=(), fresh=fresh)

    def losses(self, outputs: Any, targets: Any, negatives: Any = None) -> dict[str, Any]:
        """Return each prediction's negative log-probability in nats.

        Args:
            outputs: as `windows` gives them.
            targets: for each direction the next tokens, integer (B, T).
            negatives: for each direction `Negatives`, for the sampled loss; None for the full one.
        Returns: for each direction float (B, T).
        """
        losses = {}
        for name in self.directions:
            hidden = ops.reshape(outputs[name][-1], (-1, self.options.lstm.projection_dim))
            flat = ops.reshape(targets[name], (-1,))
            draws = None if negatives is None else negatives[name]
            losses[name] = ops.reshape(self.softmax(hidden, flat, draws), ops.shape(targets[name]))
        return losses

    def call(self, ids: Any, state: Any = None, training: bool | None = None) -> Any:
        """Run over whole sentences with their marks, as `Batcher` gives them.

        Args:
            ids: characters integer (B, T, C), or words or cached token vectors (B, T); 0 is
                padding, at the end of a row.
            state: as `zero_state` gives it, or None for a fresh start.
        Returns: dict of `layers` float (B, layers + 1, T, 2 P), layer 0 being the token's vector
        twice (P and once for a forward-only model), `token_embeddings` float (B, T, P), `mask`
        boolean (B, T) and `state`. Padded positions hold no meaning.
        """
        mask = ids > 0 if len(ids.shape) == 2 else ops.any(ids > 0, axis=-1)
        vectors = self.encoder(ids)
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
        for name in self.directions:
            layers, last[name] = self.stacks[name](
                _vectors_time_first(vectors[name]),
                state[name],
                steps_mask=_time_first(mask),
                fresh=_time_first(fresh),
                reverse=name in reverse,
                dropout_seed=None if dropout_seeds is None else dropout_seeds[name],
                training=training,
            )
            outputs[name] = [ops.transpose(layer, (1, 0, 2)) for layer in layers]
        return outputs, last


def _vectors_time_first(vectors):
    """Swap the first two axes of float (B, T, P), or of the places of `TableRows`."""
    if isinstance(vectors, TableRows):
        # As float32, which holds them exactly: oneDNN says that it cannot transpose integers.
        places = ops.transpose(ops.cast(vectors.places, "float32"))
        return TableRows(vectors.table, ops.cast(places, "int32"))
    return ops.transpose(vectors, (1, 0, 2))


def _time_first(mask):
    """Swap the axes of a boolean (B, T), as numbers: oneDNN says that it cannot do others."""
    return None if mask is None else ops.transpose(ops.where(mask, 1.0, 0.0)) > 0


def _encoder(
    options: ModelOptions, n_tokens: int | None, padding: bool, precision: str, dtype: Any
) -> TokenEncoder | WordEncoder:
    """Return the layer that makes vectors of tokens; with padding every table has a row more."""
    width, how = options.lstm.projection_dim, {"dtype": dtype, "name": "encoder"}
    if options.reads_words:
        return WordEncoder(width, n_tokens + padding, **how)
    cnn = options.char_cnn
    if cnn is not None:
        n_characters = N_CHARACTERS_WITH_PADDING if padding else N_CHARACTERS
        shape = n_characters, cnn.embedding.dim, cnn.filters, cnn.activation, cnn.n_highway
        return TokenEncoder(width, *shape, precision, **how)
    cnn = options.lexicon_encoder
    words, characters = cnn.words, cnn.characters
    shape = (0, 0, (), cnn.activation, 0)
    if characters is not None:
        n_characters = characters.n_rows + padding
        shape = n_characters, characters.dim, cnn.filters, cnn.activation, cnn.n_highway
    table = words and (words.n_rows + padding, words.dim)
    return TokenEncoder(width, *shape, precision, words=table, always_projects=True, **how)


def _check_eager() -> None:
    """Refuse TensorFlow's old mode, in which a call gives no numbers. Raises: BilmError."""
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise BilmError(
            "TensorFlow runs as version 1 did, and models do not: remove disable_eager_execution, "
            "disable_v2_behavior or `with tf.Graph().as_default()` from the program"
        )
