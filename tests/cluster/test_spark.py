"""Spark: the same rows as one command, and one line for each fault; `make test-cluster`."""

import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from command_runs import run
from conftest import golden_cases

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore"),  # PySpark warns of pandas, and leaves sockets open
]

pytest.importorskip("pyspark", reason="make test-cluster has PySpark")
duckdb = pytest.importorskip("duckdb", reason="make test-cluster has DuckDB")
import pandas as pd  # noqa: E402
import polars as pl  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

import bilm.cluster.spark as bilm_spark  # noqa: E402
from bilm.embedding.corpus import dump_bilm_embeddings  # noqa: E402
from bilm.embedding.embedder import ElmoEmbedder  # noqa: E402
from bilm.errors import DataError, OptionsError, WeightsError  # noqa: E402

CASE = golden_cases("inference")[0].values[0]
FILES = CASE / "options.json", CASE / "weights.hdf5"
LINES = [f"line {i} of the text" for i in range(200)] + ["", "Где ты 😀 ?", "the end ."]


@pytest.fixture(scope="module", autouse=True)
def spark():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")
    return path


def embed(text, output, n_partitions=5, files=FILES, **how):
    return bilm_spark.embed_corpus(None, text, *files, output, n_partitions=n_partitions, **how)


def close(frame, expected, name):
    for one, other in zip(frame[name], expected[name], strict=True):
        one, other = (
            np.array([list(v) for v in x] if name != "vector" else x) for x in (one, other)
        )
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_spark_writes_the_rows_of_one_command_for_every_reader(spark, text, tmp_path):
    how = {"layers": "average", "pool": "mean"}
    dump_bilm_embeddings(None, text, *FILES, tmp_path / "whole.parquet", **how)
    folder = tmp_path / "set"
    assert embed(text, f"{folder}/", **how) == len(LINES)
    expected = pd.read_parquet(tmp_path / "whole.parquet")
    query = f"select * from read_parquet('{folder}/*.parquet')"
    for frame in (
        pd.read_parquet(folder),
        pl.read_parquet(folder / "*.parquet").to_pandas(),
        duckdb.sql(query).df(),
        spark.read.parquet(str(folder)).toPandas(),
    ):
        ordered = dict(zip(frame["sentence"], frame["vector"], strict=True))
        assert sorted(frame["sentence"]) == sorted(expected["sentence"])
        for sentence, vector in zip(expected["sentence"], expected["vector"], strict=True):
            np.testing.assert_allclose(np.array(ordered[sentence]), vector, atol=1e-5)
    assert pd.read_parquet(folder)["sentence"].tolist() == expected["sentence"].tolist()


def test_spark_with_ids_layers_and_words(text, tmp_path):
    table = tmp_path / "table.csv"
    rows = [f"id{i},{line}" for i, line in enumerate(LINES) if "," not in line]
    table.write_text("id,text\n" + "\n".join(rows), encoding="utf-8")
    reading = {"column": "text", "id_column": "id"}
    embed(table, f"{tmp_path}/set/", reading=reading, layers="0,2")
    dump_bilm_embeddings(None, table, *FILES, tmp_path / "one.parquet", layers="0,2", **reading)
    frame, expected = pd.read_parquet(tmp_path / "set"), pd.read_parquet(tmp_path / "one.parquet")
    assert frame.columns.tolist() == expected.columns.tolist()
    assert frame["id"].tolist() == expected["id"].tolist()
    for name in ("layer_0", "layer_2"):
        close(frame, expected, name)
    table.write_text("id,text\n1,a b\n2,c\n1,d\n")
    with pytest.raises(DataError, match="2 sentences have the id '1'; ids must be unique"):
        embed(table, f"{tmp_path}/twice/", reading=reading)
    assert not (tmp_path / "twice").exists()


def test_data_frame_with_kept_columns(spark, text):
    rows = [(i, line, 0.5) for i, line in enumerate(LINES)]
    frame = spark.createDataFrame(rows, "n long, text string, score double").repartition(3)
    found = bilm_spark.embed(frame, FILES[0], "text", weights=FILES[1], keep=["n"])
    assert found.columns == ["n", "sentence", "vector"]
    vectors = {row.n: row.vector for row in found.collect()}
    expected = ElmoEmbedder(*FILES).sentence_vectors([line.split() for line in LINES])
    assert sorted(vectors) == list(range(len(LINES)))
    for i, vector in enumerate(expected):
        np.testing.assert_allclose(np.array(vectors[i]), vector, atol=1e-5)


def test_data_frame_with_columns_of_other_types(spark):
    query = """select timestamp '2020-01-01 00:00:00' t, decimal(1.5) c, binary('x') b,
        map('k', array(named_struct('i', 1))) m, 'a b' text"""
    df = spark.sql(query)
    found = bilm_spark.embed(df, FILES[0], "text", weights=FILES[1])
    assert found.dtypes[:4] == df.dtypes[:4]
    (row,), (expected,) = found.collect(), df.collect()
    assert row[:4] == expected[:4]


def test_columns_that_spark_cannot_use_are_refused(spark):
    df = spark.sql("select 1 `a.b`, 'a b' text")
    with pytest.raises(OptionsError, match=r"the column 'a\.b', whose name contains \. or `"):
        bilm_spark.embed(df, FILES[0], "text", weights=FILES[1])
    with pytest.raises(DataError, match="must have one column 'Text'"):
        bilm_spark.embed(df.toDF("a", "text"), FILES[0], "Text", weights=FILES[1])


def test_model_that_is_sent_to_the_workers(text, tmp_path):
    folder = shutil.copytree(CASE, tmp_path / "model")
    frame = None
    for ship in (True, False):
        how = {"layers": "top", "pool": "max", "ship_model": ship}
        bilm_spark.embed_corpus(None, text, folder, None, f"{tmp_path}/{ship}/", **how)
        other = pd.read_parquet(tmp_path / str(ship))
        if frame is not None:
            close(frame, other, "vector")
        frame = other


def test_model_that_a_worker_does_not_have_is_one_error(spark, text, tmp_path, monkeypatch):
    folder = shutil.copytree(CASE, tmp_path / "model")
    monkeypatch.setattr(bilm_spark, "_for_workers", lambda path: f"{path}-elsewhere")
    with pytest.raises(WeightsError, match=r"^worker .*: the model cannot be opened: .*-elsewhere"):
        bilm_spark.embed_corpus(None, text, folder, None, f"{tmp_path}/set/")
    other = shutil.copytree(golden_cases("inference")[1].values[0], tmp_path / "other")
    monkeypatch.setattr(bilm_spark, "_for_workers", lambda path: str(other))
    with pytest.raises(WeightsError, match=r"^worker .*/other differs from the driver's model"):
        bilm_spark.embed_corpus(None, text, folder, None, f"{tmp_path}/set/")
    assert not (tmp_path / "set").exists()


def test_line_that_is_not_utf8_is_one_error_without_output(text, tmp_path):
    lines = text.read_bytes().splitlines(keepends=True)
    lines[150] = b"\xff\n"
    text.write_bytes(b"".join(lines))
    with pytest.raises(DataError, match=r"^\S+text\.txt, line 151: not UTF-8"):
        embed(text, f"{tmp_path}/set/")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.txt"]


def test_outputs_and_options_that_spark_cannot_use_are_refused(text, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file").write_text("x")
    for output, message in [
        (f"{tmp_path}/set/", "exists; remove it"),
        (f"{tmp_path}/set.parquet", "add a slash to the name"),
        ("s3://bucket/set/", "found a URL"),
    ]:
        with pytest.raises(DataError, match=message):
            embed(text, output)
    with pytest.raises(OptionsError, match="float16 cannot be used with Spark"):
        embed(text, f"{tmp_path}/new/", dtype="float16")


def children(pid):
    """Return the child processes of a process."""
    tasks = Path(f"/proc/{pid}/task")
    found = [words for task in tasks.iterdir() for words in (task / "children").read_text().split()]
    return [int(child) for child in found]


def python_workers(session):
    """Return the processes that run Spark's tasks: children of the daemon that Java started."""
    java = session.sparkContext._gateway.proc.pid
    return [worker for daemon in children(java) for worker in children(daemon)]


@pytest.mark.parametrize("n_kills", [1, 2])
def test_killed_worker_is_replaced_and_nothing_is_lost_or_doubled(spark, text, tmp_path, n_kills):
    text.write_text("\n".join(LINES * 200), encoding="utf-8")
    killed = []
    ended = threading.Event()

    def kill():
        while len(killed) < n_kills and not ended.wait(2):
            for worker in python_workers(spark)[:1]:
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        n = embed(text, f"{tmp_path}/set/", n_partitions=8, pool="mean", layers="all")
    finally:
        ended.set()
        killer.join()
    assert killed
    assert n == len(LINES) * 200
    assert pd.read_parquet(tmp_path / "set")["sentence"].tolist() == LINES * 200


def test_command_and_its_errors(text, tmp_path):
    how = ["--model", CASE, "--input", text, "--engine", "spark", "--master", "local[2]"]
    how += ["--pool", "mean", "--partitions", "3"]
    done = run("bilm embed", *map(str, how), "--output", f"{tmp_path}/set/")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"wrote {tmp_path}/set/: {len(LINES)} sentences\n"
    text.write_bytes(b"a\n\xff\n")
    done = run("bilm embed", *map(str, how), "--output", f"{tmp_path}/other/")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"bilm embed: error: {text}, line 2: not UTF-8")
    assert "Traceback" not in done.stderr
