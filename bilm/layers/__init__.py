"""The Keras layers that a biLM is made of, on any Keras backend.

`token_encoder` (with `char_cnn` and `highway`) turns characters into vectors, `stack` (with `lstm`
and `state`) reads them in one direction, `sampled_softmax` predicts words, `scalar_mix` weights
layers. `tensorflow/` holds faster twins of some. Imports errors only, and takes plain arguments.
"""
