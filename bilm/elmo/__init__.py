"""ELMo as a Keras layer, with the names of bilm-tf's `bilm.elmo`."""

from bilm.elmo.layer import Elmo as Elmo
from bilm.support.imports import lazily

MODULES = {
    "compat.bilm_tf": "weight_layers",
    "elmo.layer": "Elmo",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
