"""Helpers that are not specific to language models, and the names of the files of models.

`files` protects inputs, writes outputs atomically and locks, `urls` and `remote` recognize, read
and write URLs, `model_files` lists the names of the files of stored models, `imports` imports
public names on first use and optional packages, `entry_points` those that other packages add,
`progress` logs progress, and `process` configures TensorFlow's process.
"""

from bilm.support.imports import lazily

MODULES = {
    "support.files": "protect replacing scratch",
    "support.imports": "lazily optional",
    "support.model_files": "HELDOUT NGRAM_COUNTS OPTIONS",
    "support.progress": "Progress",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
