"""Embed a Hugging Face dataset: pip install '.[parquet]' datasets, then run this file."""

import datasets
import pyarrow

from bilm.cluster import embed_batches

SENTENCES = datasets.Dataset.from_dict(
    {"id": [1, 2], "text": ["The bank closed .", "She sat there ."]}
)


def embed(table: pyarrow.Table) -> pyarrow.Table:
    batches = embed_batches(table.to_batches(), "novels-en", "text", layers="average", pool="mean")
    return pyarrow.Table.from_batches(batches)


if __name__ == "__main__":
    for row in SENTENCES.with_format("arrow").map(embed, batched=True).with_format("numpy"):
        print(row["id"], len(row["vector"]))
