"""A stack of LSTM layers that read in one direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bilm.layers.functional import dropout, dropout_mask, fold_seed
from bilm.layers.lstm import LSTM, LSTMCell
from bilm.layers.lstm_equation import LSTMState
from bilm.layers.types import Tensor


class LSTMStack(keras.layers.Layer):
    """LSTM layers; each reads the output of the layer below.

    Args:
        n_layers: number of layers.
        dim, projection_dim, cell_clip, proj_clip, precision: see `LSTMCell`.
        use_skip_connections: whether the input of a layer is added to its output, from the second
            layer on.
        dropout, variational_dropout: see `Regularization`.

    Inputs: x float `(T, B, P)`, time first; an `LSTMState` per layer; others see `LSTM` and
    `dropout_masks`. Returns: the output float `(T, B, P)` of each layer and, with dropout, the last
    one after its dropout; the state of each layer.
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
        variational_dropout: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.use_skip_connections = use_skip_connections
        self.dropout = dropout
        self.variational_dropout = variational_dropout
        self.dim = dim
        self.projection_dim = projection_dim
        self.layers = []
        for i in range(n_layers):
            cell = LSTMCell(
                dim,
                projection_dim,
                cell_clip,
                proj_clip,
                precision,
                dtype=self.dtype_policy,
                name="cell",
            )
            self.layers.append(LSTM(cell, name=f"layer_{i}"))

    def build(self, input_shape: Any) -> None:
        """Create the variables; only the last axis of the input shape is needed."""
        for layer in self.layers:
            layer.build(input_shape)
            input_shape = (None, None, self.projection_dim)
        self.built = True

    def call(
        self,
        x: Tensor,
        states: Sequence[LSTMState],
        steps_mask: Tensor | None = None,
        reverse: bool = False,
        dropout_seed: Tensor | None = None,
        training: bool | None = None,
        fresh: Tensor | None = None,
    ) -> tuple[list[Tensor], list[LSTMState]]:
        """Run every layer over time."""
        *masks, last_mask = self.dropout_masks(dropout_seed, *ops.shape(x)[:2])
        how = {"steps_mask": steps_mask, "reverse": reverse, "training": training, "fresh": fresh}
        outputs, last_states = [], []
        for i, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            x = dropout(x, self.dropout, masks[i])
            y, last_state = layer(x, state, **how)
            if self.use_skip_connections and i > 0:
                y = y + x  # x after its dropout, as in the reference
            outputs.append(y)
            last_states.append(last_state)
            x = y
        if last_mask is not None:
            outputs.append(dropout(x, self.dropout, last_mask))
        return outputs, last_states

    def dropout_masks(
        self, seed: Tensor | None, n_steps: int | Tensor, n_rows: int | Tensor
    ) -> list[Tensor | None]:
        """Draw the masks of a window, boolean `(n_steps, n_rows, P)`: one for the input of each
        layer and one for the last output; each is None without dropout. With `variational_dropout`,
        a mask is `(1, n_rows, P)`, for all steps. `seed`: integer `(2,)`; None for no dropout."""
        numbers = range(len(self.layers) + 1)
        if seed is None:
            return [None for _ in numbers]
        shape = 1 if self.variational_dropout else n_steps, n_rows, self.projection_dim
        return [dropout_mask(shape, self.dropout, fold_seed(seed, i)) for i in numbers]

    def zero_state(self, batch_size: int | Tensor) -> list[LSTMState]:
        """Return the zero state of `batch_size` rows."""
        states = []
        for _ in self.layers:
            cell = ops.zeros((batch_size, self.dim), self.compute_dtype)
            hidden = ops.zeros((batch_size, self.projection_dim), self.compute_dtype)
            states.append(LSTMState(cell, hidden))
        return states
