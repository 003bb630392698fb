"""Embedding Arrow record batches, for engines such as Spark, Ray, Dask and Hugging Face."""

from bilm.cluster.batches import embed_batches, output_schema

__all__ = ["embed_batches", "output_schema"]
