"""Helpers that are not specific to language models.

`files` writes outputs atomically and locks files, `imports` imports public names on first use and
optional packages, `progress` reports progress, and `process` configures TensorFlow's process.
Imports `errors`.
"""
