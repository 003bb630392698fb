"""The activations of the character CNN, each defined here for all libraries that compute it."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Activation(NamedTuple):
    """A non-decreasing function, because it is applied after the maximum over a filter's places.
    To add an activation, add it to `ACTIVATIONS`. Options files and all backends then accept it."""

    keras: str  # name of the function in `keras.ops`
    numpy: Callable[[Any, Any], Any]  # from the module NumPy and an array to the result
    onnx: str  # name of the operation
    # Whether a filter's initial weights are uniform in [-0.05, 0.05]; otherwise they are normal,
    # with a variance of 1 / n for n inputs.
    is_uniform: bool = False


ACTIVATIONS = {
    "relu": Activation("relu", lambda np, x: np.maximum(x, 0), "Relu", is_uniform=True),
    "tanh": Activation("tanh", lambda np, x: np.tanh(x), "Tanh"),
}
