"""Memory of the training text: predicts the words that stood in similar contexts.

`text` is the remembered text, `features` compares words, `prediction` computes probabilities from
both, `fitting` fits their weights, and `file` stores them. Imports NumPy, but not Keras.
"""

from bilm.support.imports import lazily

HOMES = {"Memory": "scoring.memory.prediction", "StoredMemory": "scoring.memory.file"}
__getattr__, __dir__, __all__ = lazily(__name__, HOMES)
