"""What models on disk look like: one module per format, all with the same few functions.

`known` lists them and says what each must define. `bilm_tf` is HDF5 with `options.json`, `run` a
run's folder of checkpoints, ours or TensorFlow 1's, `manylangs` ELMoForManyLangs, whose PyTorch
files `state_dict` and `pickles` read. `foreign` names what is not supported.
"""
