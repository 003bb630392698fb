"""The types of tensors and of their shapes in annotations."""

from typing import Any, TypeAlias

# A tensor of the library that computes. Keras has no common type for those of its backends, for
# its variables and for NumPy's arrays, all of which its operations accept.
Tensor: TypeAlias = Any
Shape: TypeAlias = tuple[Any, ...]  # of integers; None for a size that is not known
# The LSTM states of a biLM: float (B, width) each, by direction, layer, cell before hidden.
State: TypeAlias = list[Tensor]
