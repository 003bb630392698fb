"""Sentences or corpora -> vectors, as NumPy arrays or files.

`embedder` is the public class; `backends` compute models.
`corpus` embeds whole corpora with `writers` of files, which `embedding_file` reads.
`choices` lists the output formats and ways to pool. Imports `storage` and what it may import.
"""
