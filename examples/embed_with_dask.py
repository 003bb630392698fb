"""Embed a data frame with Dask: pip install '.[parquet]' 'dask[distributed]', then run this file.

The scheduler may be Dask's default one, of threads, or that of `dask.distributed`.
"""

import dask.dataframe as dd
import pandas as pd
import pyarrow

from bilm.cluster import embed_batches

SENTENCES = pd.DataFrame({"id": [1, 2], "text": ["The bank closed .", "She sat there ."]})
COLUMNS = {"id": "int64", "vector": "object"}


def embed(frame: pd.DataFrame) -> pd.DataFrame:
    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    batches = embed_batches(table.to_batches(), "novels-en", "text", layers="average", pool="mean")
    return pyarrow.Table.from_batches(batches).to_pandas()[list(COLUMNS)]


if __name__ == "__main__":
    parts = dd.from_pandas(SENTENCES, npartitions=2)
    for row in parts.map_partitions(embed, meta=COLUMNS).compute().itertuples():
        print(row.id, len(row.vector))
