"""Faster implementations of layers on TensorFlow, which layers import when they are called.

`lstm` runs an LSTM over time, with `lstm_weights` for inference and `lstm_training` for the
gradient; `char_cnn` and `full_softmax` replace parts of the layers. Tests compare each with the
layer that it replaces. `spelling` computes the character ids of strings.
"""
