"""A stack of LSTM layers that read in one direction, and the regularization of a biLM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
from keras import ops

from bilm.layers.functional import dropout, fold_seed
from bilm.layers.lstm import LSTM, LSTMCell
from bilm.layers.lstm_equation import LSTMState
from bilm.layers.types import Shape, Tensor


@dataclass(frozen=True)
class Regularization:
    """Settings of training, with the names of the keys of `options.json`.

    Args:
        dropout: rate on the input of each LSTM layer and on the last output.
        variational_dropout: whether a row has the same mask of `dropout` at all steps of a window
            (Gal and Ghahramani 2016, arXiv:1512.05287) instead of one mask per step.
        embedding_dropout: probability of replacing the vector of a distinct token of a replica's
            window by zeros, at all of its positions and in both directions.
    """

    dropout: float = 0.0
    variational_dropout: bool = False
    embedding_dropout: float = 0.0


class DropoutSeeds(NamedTuple):
    """Seeds of a replica's masks in a step: integers (2,); None without the setting."""

    layers: Mapping[str, Tensor] | None = None  # a seed for each direction, of `dropout`
    tokens: Tensor | None = None  # of `embedding_dropout`


class LSTMStack(keras.layers.Layer):
    """LSTM layers; each reads the output of the layer below.

    Args:
        cells: the cell of each layer, of equal sizes.
        use_skip_connections: whether each layer except the first adds its input to its output.
        regularization: its `dropout` and `variational_dropout` apply here.

    Inputs: x float `(T, B, P)`, time first; an `LSTMState` per layer; `dropout_seed`, integer
    `(2,)`, None for no dropout; others see `LSTM`.
    Returns: the output float `(T, B, P)` of each layer and, with dropout, the last one after its
    dropout; the state of each layer.
    """

    def __init__(
        self,
        cells: Sequence[LSTMCell],
        use_skip_connections: bool = False,
        regularization: Regularization = Regularization(),
        **kwargs: Any,
    ):
        super().__init__(dtype=cells[0].dtype_policy, **kwargs)
        self.use_skip_connections = use_skip_connections
        self.regularization = regularization
        self.dim = cells[0].dim
        self.projection_dim = cells[0].projection_dim
        self.layers = [LSTM(cell, name=f"layer_{i}") for i, cell in enumerate(cells)]

    def build(self, input_shape: Shape) -> None:
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
        how = {"steps_mask": steps_mask, "reverse": reverse, "training": training, "fresh": fresh}
        outputs = []
        last_states = []
        for i, layer in enumerate(self.layers):
            x = self.dropped(x, dropout_seed, i)
            y, last_state = layer(x, states[i], **how)
            if self.use_skip_connections and i > 0:
                y = y + x  # x after its dropout, as in the reference
            outputs.append(y)
            last_states.append(last_state)
            x = y
        if dropout_seed is not None:
            outputs.append(self.dropped(x, dropout_seed, len(self.layers)))
        return outputs, last_states

    def dropped(self, x: Tensor, seed: Tensor | None, number: int) -> Tensor:
        """Apply dropout to the input of a layer, by its number, or to the last output."""
        if seed is None:
            return x
        n_steps, n_rows, width = ops.shape(x)
        n_drawn = 1 if self.regularization.variational_dropout else n_steps
        rate = self.regularization.dropout
        return dropout(x, rate, fold_seed(seed, number), (n_drawn, n_rows, width))

    def zero_state(self, batch_size: int | Tensor) -> list[LSTMState]:
        """Return the zero state of `batch_size` rows."""
        states = []
        for _ in self.layers:
            cell = ops.zeros((batch_size, self.dim), self.compute_dtype)
            hidden = ops.zeros((batch_size, self.projection_dim), self.compute_dtype)
            states.append(LSTMState(cell, hidden))
        return states
