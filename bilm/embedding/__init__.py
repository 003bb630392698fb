"""Sentences or corpora in, vectors out, with NumPy on both sides.

`embedder` is the public class, `token_cache` keeps the vectors of words, `packed_runner` runs many
sentences in a few rows, `collecting` keeps what is wanted of each. `corpus` embeds whole corpora:
`part_files` are what it writes first, `outputs` what it makes of them. Imports what `storage` may
import, and `storage`.
"""
