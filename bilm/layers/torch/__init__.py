"""`lstm`: a faster run of an LSTM over time on PyTorch; tests compare it with the layer."""
