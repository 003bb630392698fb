"""Faster implementations of layers on PyTorch.

`lstm` runs an LSTM over time. Each function computes the same numbers as the layer that uses it;
tests compare them. Imports `layers` and PyTorch.
"""
