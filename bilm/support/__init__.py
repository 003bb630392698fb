"""Helpers that are not specific to language models.

`files` writes outputs atomically and `locks` locks files. `extras` imports optional packages,
`lazy_imports` imports public names on first use, `progress` reports progress, `process` configures
TensorFlow's process, and `installation` detects a conflicting installation. Imports `errors`.
"""
