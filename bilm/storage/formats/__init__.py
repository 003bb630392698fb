"""The formats of stored models.

`base` declares what each format defines. `bilm_tf` (HDF5 with `options.json`), `run` (TensorFlow
checkpoints with `options.json`), `allennlp`, `manylangs` (ELMoForManyLangs) and `tfhub` are the
formats; `known` is their registry. `derived` derives options from shapes. `pytorch` reads PyTorch's
files, and `pytorch_rows` describes the layout of their tensors. Imports the same packages as
`storage`.
"""
