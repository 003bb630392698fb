"""Memory of the training text: predicts the words that stood in similar contexts.

`text` is the remembered text, `features` compares words, and `prediction` computes probabilities
from both. `fitting` fits the weights of the features, the shares of the mixture with the biLM and
the exponents of gap filling; `file` stores all of them. Imports NumPy, but not Keras.
"""

from bilm.support.imports import lazily

HOMES = {"Memory": "scoring.memory.prediction", "StoredMemory": "scoring.memory.file"}
__getattr__, __dir__, __all__ = lazily(__name__, HOMES)
