"""ELMo as a Keras layer, with the names of bilm-tf's `bilm.elmo`."""

from bilm.elmo.layer import Elmo as Elmo
from bilm.support.imports import lazily

MODULES = {"elmo.layer": "Elmo", "compat.bilm_tf": "weight_layers"}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
