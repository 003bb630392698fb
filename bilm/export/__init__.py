"""Files for other programs.

`hdf5` writes weights and options in bilm-tf's format, and `model_card` a description of them.
`saved_model` writes a TensorFlow SavedModel, `onnx` an ONNX model, and `word2vec` the vectors of
words as text.
"""
