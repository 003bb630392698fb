"""Faster implementations of layers on TensorFlow, which layers import when they are called.

`lstm` runs an LSTM over time, `lstm_training` with a gradient; `char_cnn` and `full_softmax`
replace parts of the layers. Tests compare each with the layer that it replaces. `spelling` computes
the character ids of strings.
"""
