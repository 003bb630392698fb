"""Sentences or corpora -> vectors, as NumPy arrays or files.

`embedder` is the public class; `shared` keeps one of each model per process. `corpus` embeds whole
corpora, or shares of them, with `writers` of files, which `embedding_file` reads. `forms` lists the
formats and the ways to pool, and defines shares.
"""

from bilm.support.imports import lazily

MODULES = {"embedding.embedder": "ElmoEmbedder"}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
