"""`bilm embed --shard`: the files of all shares together contain the vectors of the corpus."""

import numpy as np
import pytest
from command_runs import succeeded
from stored_files import OPTIONS, WEIGHTS

from bilm.embedding.embedding_file import read_embeddings

LINES = [f"line {i} of the text" for i in range(9)] + ["", "Где ты 😀 ?", "the end ."]
MODEL = "--model", OPTIONS, "--weights", WEIGHTS


@pytest.fixture
def text(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(LINES[:7]) + "\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("\n".join(LINES[7:]) + "\n", encoding="utf-8")
    return tmp_path / "?.txt"


def read_npz(path):
    with np.load(path) as file:
        return list(file["vectors"])


def read_hdf5(path):
    return [vectors for *_, vectors in read_embeddings(path)]


def read_parquet(path):
    table = pytest.importorskip("pyarrow.parquet").read_table(path)
    return [np.array(vector) for vector in table["vector"].to_pylist()]


@pytest.mark.parametrize("n", [2, 15])
@pytest.mark.parametrize(
    ("name", "pool", "read"),
    [
        ("vectors.npz", "mean", read_npz),
        ("vectors.hdf5", "none", read_hdf5),
        ("vectors.parquet", "mean", read_parquet),
    ],
)
def test_shares_together_are_the_corpus(run_here, text, tmp_path, name, pool, read, n):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow", reason="make test-clients has pyarrow")
    how = *MODEL, "--input", text, "--output", tmp_path / name, "--layers", "top", "--pool", pool
    assert run_here("bilm embed", *how).returncode == 0
    for i in range(n):
        succeeded(run_here("bilm embed", *how, "--shard", f"{i}/{n}"))
    stem, ending = name.split(".")
    found = [v for i in range(n) for v in read(tmp_path / f"{stem}-{i:05}-of-{n:05}.{ending}")]
    expected = read(tmp_path / name)
    assert len(found) == len(expected) == len(LINES)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_share_that_does_not_exist_is_refused(run_here, text, tmp_path):
    how = *MODEL, "--input", text, "--output", tmp_path / "x.npz"
    done = run_here("bilm embed", *how, "--shard", "2/2")
    assert done.returncode == 1 and "--shard 2/2: expected i/n" in done.stderr
