"""Examination of an installation, for `bilm doctor`.

`examination` collects the report; `probes` computes, in processes of its own so that a crash ends
only the probe. Imports what `training` may import; only `probes` imports TensorFlow or Keras.
`golden_case/` contains a small model and the vectors that bilm-tf computed with it.
"""
