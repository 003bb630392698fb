"""Runs one direction of a language model over a window of one row."""

from __future__ import annotations

from typing import Any

from bilm.language_model import BiLM
from bilm.layers.state import LSTMState


def flat_state(model: BiLM, direction: str) -> list:
    """Return the zero state of one row as a list of tensors: cell, hidden state of each layer."""
    return [part for layer in model.zero_state(1)[direction] for part in layer]


def with_layers(run: Any, batch: dict[str, Any], direction: str, state: Any) -> Any:
    """Call a function of one direction's batch and flat state; return its results, with the state
    as a list of `LSTMState`."""
    own = {
        "distinct": batch["distinct"],
        "place": batch["places"][direction],
        "target": batch["targets"][direction],
    }
    *results, flat = run(own, [part for layer in state for part in layer])
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return *results, [type(layer)(*pair) for layer, pair in zip(state, pairs, strict=True)]


def read_window(
    model: BiLM, direction: str, batch: dict[str, Any], state: list, training: bool = False
) -> tuple[Any, Any, list]:
    """Run one direction over a window of one row.

    Args:
        batch: `distinct`, and `place` and `target`, integer (1, T).
        state: tensors of the state: cell and hidden state of each layer.
    Returns: losses float (T,), outputs of the last layer float (T, P), and the next state.
    """
    pairs = zip(state[::2], state[1::2], strict=True)
    before = {direction: [LSTMState(*pair) for pair in pairs]}
    vectors = model.encode({"distinct": batch["distinct"], "places": {direction: batch["place"]}})
    outputs, after = model.windows(vectors, before, training=training)
    losses = model.losses(outputs, {direction: batch["target"]})
    flat = [part for layer in after[direction] for part in layer]
    return losses[direction][0], outputs[direction][-1][0], flat
