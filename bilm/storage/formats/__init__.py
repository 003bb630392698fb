"""The formats of stored models, one class each. Only they read files of models.

`base` declares what each format defines. The formats are `bilm_tf` (HDF5 with `options.json`),
`run` (TensorFlow checkpoints with `options.json`), `allennlp`, `manylangs` (ELMoForManyLangs) and
`tfhub`; `known` is their registry. `derived` derives options from shapes, `pytorch` reads PyTorch's
files, and `pytorch_rows` lists the places of bilm's tensors in them. May import `options`, the
packages below it, and the modules of `storage` except `stored_model`, `stored_weights` and
`finding`, which import the formats.
"""
