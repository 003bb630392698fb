"""The Keras layers of a biLM, for any Keras backend.

`token_encoder` (with `char_cnn` and `highway`) turns characters into vectors, `stack` (with `lstm`
and `state`) reads them in one direction, `sampled_softmax` predicts words, and `scalar_mix` weights
layers. `regularization` contains the settings of training. `tensorflow/` contains faster
implementations. Imports `errors` only, never `options`.
"""
