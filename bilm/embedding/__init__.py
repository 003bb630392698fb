"""Sentences or corpora -> vectors, as NumPy arrays or files.

`embedder` is the public class; `shared` keeps one of each model per process.
`corpus` embeds whole corpora with `writers` of files, which `embedding_file` reads.
`choices` lists output formats and ways to pool. Imports `inference` and what it may import.
"""
