"""The type of tensors in annotations."""

from typing import Any, TypeAlias

# A tensor of the library that computes. Keras has no common type for those of its backends, for
# its variables and for NumPy's arrays, all of which its operations accept.
Tensor: TypeAlias = Any
