"""Helpers that are not specific to language models, and the names of files of models."""

from bilm.support.imports import lazily

MODULES = {
    "support.files": "protect replacing scratch",
    "support.imports": "lazily optional",
    "support.model_files": "HELDOUT HISTORY NGRAM_COUNTS OPTIONS",
    "support.progress": "Progress",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
