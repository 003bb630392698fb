"""Memory of the training text: predicts the words that stood in similar contexts.

`text` compares contexts with the remembered text, `memory` computes probabilities and stores them,
and `fitting` fits the weights of the comparison, the shares of the mixture with the biLM and the
exponents of gap filling. Imports NumPy, but not Keras.
"""
