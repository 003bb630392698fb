"""ELMo as a Keras layer, with the names of bilm-tf's `bilm.elmo`.

`layer` defines the layer and `weighting` bilm-tf's function `weight_layers`. Imports `storage`,
`embedding` and everything below them.
"""

from bilm.elmo.layer import Elmo
from bilm.elmo.weighting import weight_layers

__all__ = ["Elmo", "weight_layers"]
