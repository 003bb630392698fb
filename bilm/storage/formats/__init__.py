"""What models on disk look like.

`bilm_tf` (HDF5 with `options.json`), `checkpoint` (of TensorFlow, with `options.json`) and
`manylangs` (ELMoForManyLangs) are formats; `known` lists them and says what each must define.
`manylangs_tensors`, `lexicon`, `state_dict` and `pickles` read ELMoForManyLangs' files, the last
two those of PyTorch. `foreign` names what is not supported. Imports what `storage` may.
"""
