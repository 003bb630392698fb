"""ELMo as a Keras layer, with the names of bilm-tf's `bilm.elmo`.

Imports `storage`, `embedding` and everything below them.
"""

from bilm.elmo.layer import Elmo, weight_layers

__all__ = ["Elmo", "weight_layers"]
