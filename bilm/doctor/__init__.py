"""Examination of an installation, for `bilm doctor`.

`examination` lists versions, settings and devices, and reports what `probes` computes in processes
of their own, so that a library that crashes ends only its probe. The files of `golden_case/` are a
small model and the vectors that bilm-tf computed with it.
"""
