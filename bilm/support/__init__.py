"""Helpers that are not specific to language models, and the names of the files of models.

`files` writes outputs atomically and `locks` locks files. `model_files` lists the names of the
files of stored models, which outputs must not replace. `extras` imports optional packages,
`lazy_imports` imports public names on first use, `progress` reports progress, `process` configures
TensorFlow's process, and `installation` detects a conflicting installation. Imports `errors`.
"""
