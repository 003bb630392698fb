"""Diagnosis of an installation, for `bilm doctor`.

`report` collects the checks of one report; `installation` checks packages, folders and the
processor; `cuda` checks NVIDIA's driver and libraries; `probes` computes, in processes of its own
so that a crash ends only the probe; `speed` times the model against a matrix product. Imports what
`training` may import; only `probes` and `speed` import TensorFlow or Keras. `golden_case/` contains
a small model and the vectors that bilm-tf computed with it.
"""
