"""Embed a data frame with Spark: pip install '.[parquet]' pyspark, then run this file.

Spark requires Java. Each Python worker opens the model once, under the same name or path.
"""

from collections.abc import Iterator

import pyarrow
from pyspark.sql import SparkSession

from bilm.cluster import embed_batches

SENTENCES = [(1, "The bank closed ."), (2, "She sat there .")]
RESULT = "id long, vector array<float>"


def embed(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    found = embed_batches(batches, "novels-en", "text", layers="average", pool="mean", keep=["id"])
    for batch in found:
        vectors = batch["vector"].cast(pyarrow.list_(pyarrow.float32()))  # not of fixed size
        yield pyarrow.RecordBatch.from_arrays([batch["id"], vectors], names=["id", "vector"])


if __name__ == "__main__":
    spark = SparkSession.builder.getOrCreate()
    frame = spark.createDataFrame(SENTENCES, "id long, text string")
    for row in frame.mapInArrow(embed, RESULT).collect():
        print(row.id, len(row.vector))
