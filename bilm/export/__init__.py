"""Files for other programs.

`hdf5` writes weights and options in bilm-tf's format, `model_card` describes them, `saved_model`
writes a TensorFlow SavedModel and `onnx` an ONNX model.
"""
