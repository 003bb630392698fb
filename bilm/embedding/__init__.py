"""Sentences or corpora -> vectors, as NumPy arrays or files.

`embedder` is the public class; `token_cache` caches the vectors of words, `packed_runner` runs many
sentences in a few rows, `collecting` selects layers and pools. `corpus` embeds whole corpora: it
writes `parts`, which `outputs` merges into one file, which `embedding_file` reads. `choices` lists
the output formats and ways to pool. Imports `storage` and what `storage` may import.
"""
