"""Helpers that are not specific to language models, and the names of the files of models.

`files` protects inputs, writes outputs atomically and locks, `urls` and `remote` recognize, read
and write URLs, `model_files` lists the names of the files of stored models, `imports` imports
public names on first use and optional packages, `progress` logs progress, and `process` configures
TensorFlow's process.
"""
