"""Sentences or corpora -> vectors, as NumPy arrays or files.

`embedder` is the public class; `token_cache` caches the vectors of words. `corpus` embeds whole
corpora: it writes parts and merges them into one file (`outputs`), which `embedding_file` reads.
`choices` lists the output formats and ways to pool. Imports `storage` and what it may import.
"""
