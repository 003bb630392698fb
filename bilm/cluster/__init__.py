"""Embedding Arrow record batches, for engines such as Spark, Ray, Dask and Hugging Face datasets.

`batches` contains the functions below; `examples/embed_with_*.py` show how each engine calls them.
"""

from bilm.cluster.batches import embed_batches, output_schema

__all__ = ["embed_batches", "output_schema"]
