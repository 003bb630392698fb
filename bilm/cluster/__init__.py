"""Embedding Arrow record batches, for engines such as Spark: see `examples/embed_with_*.py`."""

from bilm.cluster.batches import embed_batches, output_schema

__all__ = ["embed_batches", "output_schema"]
