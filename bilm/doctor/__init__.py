"""Examination of an installation, for `bilm doctor`. The files of `golden_case/` are a small model
and the vectors that bilm-tf computed with it."""
