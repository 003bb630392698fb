"""Embed a table with Ray: pip install '.[parquet]' ray, then python examples/embed_with_ray.py."""

import pyarrow
import ray

from bilm.cluster import embed_batches

SENTENCES = pyarrow.table({"id": [1, 2], "text": ["The bank closed .", "She sat there ."]})


def embed(table: pyarrow.Table) -> pyarrow.Table:
    batches = embed_batches(table.to_batches(), "novels-en", "text", layers="average", pool="mean")
    return pyarrow.Table.from_batches(batches)


if __name__ == "__main__":
    ray.init(num_cpus=2)
    for row in ray.data.from_arrow(SENTENCES).map_batches(embed, batch_format="pyarrow").take_all():
        print(row["id"], len(row["vector"]))
