"""The examples that embed with an engine, each in a new process."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_runs import printed_by

pytestmark = pytest.mark.cluster
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("engine", ["dask", "datasets", "ray", "spark"])
def test_example_embeds_each_row(engine, tmp_path):
    package = {"spark": "pyspark"}.get(engine, engine)
    if find_spec(package) is None:
        pytest.skip(f"make test-cluster has {package}")
    settings = {"PYSPARK_PYTHON": sys.executable, "RAY_USAGE_STATS_ENABLED": "0"}
    settings["HF_HOME"] = str(tmp_path / "cache")
    program = [sys.executable, EXAMPLES / f"embed_with_{engine}.py"]
    printed = printed_by(program, cwd=tmp_path, **settings)
    assert sorted(printed.splitlines())[-2:] == ["1 256", "2 256"]
