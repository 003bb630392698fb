"""The Python blocks of docs/clusters.md about embedding, each in a new process."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster
PAGE = Path(__file__).parents[2] / "docs" / "clusters.md"
SECTION = PAGE.read_text(encoding="utf-8").partition("# Training on several hosts\n")[0]
BLOCKS = re.findall(r"```python\n(.*?)```", SECTION, flags=re.DOTALL)
EMBEDDED = next(block for block in BLOCKS if "def embedded(" in block)
CHECKS = {
    "pyspark": "assert sorted(row.id for row in vectors.collect()) == [1, 2]",
    "pyarrow.parquet": 'assert parquet.read_table("vectors.parquet")["id"].to_pylist() == [1, 2]',
    "ray": 'assert [row["id"] for row in by_ray] == [1, 2] and len(by_ray[0]["vector"]) == 256',
    "dask": 'assert list(by_dask["id"]) == [1, 2] and len(by_dask["vector"].iloc[0]) == 256',
    "datasets": 'assert by_datasets.num_rows == 2 and len(by_datasets[0]["vector"][0]) == 256',
}


@pytest.mark.parametrize("engine", CHECKS)
def test_recipe_runs_and_returns_each_row(engine, tmp_path):
    if find_spec(engine.split(".")[0]) is None:
        pytest.skip(f"make test-cluster has {engine}")
    block = next(b for b in BLOCKS if re.search(rf"^(import|from) {engine}", b, re.MULTILINE))
    program = tmp_path / "recipe.py"
    blocks = [block] if engine == "pyspark" else [EMBEDDED, block]
    program.write_text("\n".join([*blocks, CHECKS[engine]]) + "\n", encoding="utf-8")
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "RAY_USAGE_STATS_ENABLED": "0"}
    environment["HF_HOME"] = str(tmp_path / "cache")
    done = subprocess.run(
        [sys.executable, program],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
