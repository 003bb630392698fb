"""Sentences or corpora in, vectors out, with NumPy on both sides.

`embedder` is the public class, `token_cache` keeps the vectors of words, `packed_runner` runs many
sentences in a few rows, `corpus` writes HDF5. Imports what `storage` may import, and `storage`.
"""
