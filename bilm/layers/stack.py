"""A stack of LSTM layers reading in one direction."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from bilm.layers.functional import dropout, fold_seed
from bilm.layers.lstm import LSTM
from bilm.layers.state import LSTMState


class LSTMStack(keras.layers.Layer):
    """LSTM layers on top of each other; from the second on, a layer's input is added to its output.

    Args:
        n_layers: number of layers.
        dim, projection_dim, cell_clip, proj_clip: see `LSTMCell`.
        use_skip_connections: whether the residual is there.
        dropout: rate on the input of every layer and on the last output, where a seed is given.
        precision: of the operands of products, `float32` or `bfloat16`.

    Inputs: x float `(T, B, P)`, time first, or `TableRows`; a list of `n_layers` `LSTMState`;
    `steps_mask` boolean `(T, B)` or None; `reverse` and `fresh`, see `LSTM`; `dropout_seed`
    integer `(2,)` or None for no dropout.
    Returns: a list of `n_layers` outputs float `(T, B, P)` and the list of states.
    Raises: ValueError if the number of states is not `n_layers`.
    """

    def __init__(
        self,
        n_layers: int,
        dim: int,
        projection_dim: int,
        cell_clip: float | None = None,
        proj_clip: float | None = None,
        use_skip_connections: bool = False,
        dropout: float = 0.0,
        precision: str = "float32",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.use_skip_connections = use_skip_connections
        self.dropout = dropout
        self.dim, self.projection_dim = dim, projection_dim
        self.layers = [
            LSTM(
                dim,
                projection_dim,
                cell_clip,
                proj_clip,
                precision,
                dtype=self.dtype_policy,
                name=f"layer_{i}",
            )
            for i in range(n_layers)
        ]

    def build(self, input_shape: Any) -> None:
        """Make every layer's variables; only the last axis of the input is looked at."""
        for layer in self.layers:
            layer.build(input_shape)
            input_shape = (None, None, self.projection_dim)
        self.built = True

    def call(
        self,
        x: Any,
        states: Any,
        steps_mask: Any = None,
        reverse: bool = False,
        dropout_seed: Any = None,
        training: bool | None = None,
        fresh: Any = None,
    ) -> Any:
        """Run every layer over time: float (T, B, P) -> [float (T, B, P)], [state]."""
        if len(states) != len(self.layers):
            raise ValueError(f"got {len(states)} states for {len(self.layers)} layers")
        outputs, last_states = [], []
        for i, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            x = dropout(x, self.dropout, fold_seed(dropout_seed, i))
            y, state = layer(
                x, state, steps_mask=steps_mask, reverse=reverse, training=training, fresh=fresh
            )
            if self.use_skip_connections and i > 0:
                y = y + x  # x after its dropout, as in the reference
            outputs.append(y)
            last_states.append(state)
            x = y
        outputs[-1] = dropout(x, self.dropout, fold_seed(dropout_seed, len(self.layers)))
        return outputs, last_states

    def zero_state(self, batch_size: int) -> list[LSTMState]:
        """Return the state of a fresh start for `batch_size` rows."""
        shapes = [(batch_size, width) for width in (self.dim, self.projection_dim)]
        dtype = self.compute_dtype
        return [LSTMState(*(ops.zeros(shape, dtype) for shape in shapes)) for _ in self.layers]
