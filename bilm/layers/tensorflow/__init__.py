"""Faster twins of layers on TensorFlow, each imported by its layer where it is called.

The LSTM for inference and for training with its gradient written by hand, the character CNN, and
the spelling of strings inside a graph. A test compares each with the layer that it stands for.
"""
