"""Embedding more text than one machine embeds.

`batches` embeds Arrow record batches, and everything for engines such as Ray, Dask and Hugging Face
datasets follows from it. `spark` embeds data frames and corpora with Spark. `array` divides a
corpus between independent tasks, such as a Slurm array, and merges their results; `plan` reads and
writes the files that these tasks share. Imports `embedding` and what it may import.
"""

from bilm.support.imports import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Merged": "cluster.array",
        "TaskResult": "cluster.array",
        "embed_batches": "cluster.batches",
        "embed_task": "cluster.array",
        "merge_tasks": "cluster.array",
        "output_schema": "cluster.batches",
        "parse_shard": "cluster.array",
    },
)
