"""The Keras layers of a biLM, for any Keras backend.

`token_encoder` computes the vectors of words, from characters with `char_cnn`, or from a table.
`stack` reads them in one direction with layers of `lstm`; `lstm_equation` is one step of a cell.
`sampled_softmax` predicts words, and `scalar_mix` weights layers. `weighted` is the base class of
layers with weights of the biLM; `functional` and `types` are shared by all. `tensorflow/` and
`torch/` contain faster implementations. `onnx_graph` writes graphs of ONNX.

Layers take plain arguments: they do not import `options`.
"""
