"""The formats of stored models.

`base` declares what each format defines. `bilm_tf` (HDF5 with `options.json`), `run` (TensorFlow
checkpoints with `options.json`) and `manylangs` (ELMoForManyLangs) are the formats; `known` is
their registry. `pytorch` reads PyTorch's files. `foreign` recognizes models of other programs.
Imports the same packages as `storage`.
"""
