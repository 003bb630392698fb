"""Commands on an object store: fsspec's memory, and an S3 server of the loopback."""

import json
import logging
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from command_runs import assert_fails, succeeded
from stored_files import CASE
from tiny_runs import GOLDEN, assert_same_weights, run

fsspec = pytest.importorskip("fsspec")
SENTENCES = [f"the {i} . sentence of a small text" for i in range(300)]
BUCKET = "corpora"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.cluster)])
def store(request, tmp_path, monkeypatch, cache):
    """The URL of an empty folder; the working folder and the cache are temporary. The S3 server
    (moto) requires the packages of `.venv-engines`."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    if request.param == "memory":
        yield f"memory://{tmp_path.name}"
        return
    moto, s3fs = (pytest.importorskip(name) for name in ("moto.server", "s3fs"))
    logging.getLogger("werkzeug").setLevel("ERROR")
    server = moto.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}).items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()  # instances keep the address
    s3fs.S3FileSystem().makedirs(BUCKET, exist_ok=True)
    yield f"s3://{BUCKET}/{tmp_path.name}"
    server.stop()


def put(url, content):
    with fsspec.open(url, "wb") as file:
        file.write(content)
    return url


def get(url):
    with fsspec.open(url, "rb") as file:
        return file.read()


def put_model(url, tmp_path, padding=b""):
    packed = shutil.make_archive(str(tmp_path / "elmo"), "gztar", CASE)
    return put(url, Path(packed).read_bytes() + padding)


def rows():
    return "".join(json.dumps({"id": f"s{i}", "text": t}) + "\n" for i, t in enumerate(SENTENCES))


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_text_and_vocabulary_are_read_and_written_in_a_store(store, run_here, ending):
    source, text = put(f"{store}/rows.jsonl", rows().encode()), f"{store}/whole.txt{ending}"
    done = run_here("bilm text", f"--input={source}", "--column=text", f"--output={text}")
    assert done.returncode == 0, done.stderr
    assert f"wrote {text}: 300 sentences" in done.stdout
    succeeded(run_here("bilm vocab", f"--input={text}", f"--output={store}/vocab.txt"))
    words = get(f"{store}/vocab.txt").decode().split()
    assert words[:3] == ["<S>", "</S>", "<UNK>"] and len(words) == 3 + 7 + 300
    assert os.listdir() == []  # nothing is left in the working folder
    assert_fails(run_here("bilm vocab", f"--input={text}", f"--output={text}"), "also an input")


@pytest.mark.parametrize("form", ["parquet", "npz", "hdf5"])
def test_embeddings_of_a_store_equal_local_ones(store, run_here, tmp_path, form):
    if form == "parquet":
        pytest.importorskip("pyarrow")
    (tmp_path / "rows.jsonl").write_text(rows())
    remote = put(f"{store}/rows.jsonl", rows().encode())
    model = put_model(f"{store}/elmo.tar.gz", tmp_path)
    local, output = tmp_path / f"local.{form}", f"{store}/vectors.{form}"
    for paths in ((CASE, tmp_path / "rows.jsonl", local), (model, remote, output)):
        names = zip(("--model", "--input", "--output"), paths, strict=True)
        arguments = [f"{name}={path}" for name, path in names]
        done = run_here("bilm embed", *arguments, "--column=text", "--id_column=id", "--layers=top")
        assert done.returncode == 0, done.stderr
    if form != "hdf5":
        assert get(output) == local.read_bytes()
    else:
        (tmp_path / "found.hdf5").write_bytes(get(output))
        with h5py.File(local) as here, h5py.File(tmp_path / "found.hdf5") as there:
            assert set(here) == set(there)
            assert all(np.array_equal(here[name], there[name]) for name in here)
    assert os.listdir() == []


def test_model_in_a_store_is_copied_once_for_each_version(store, run_here, cache, tmp_path):
    n_copies = []
    for padding in (b"", bytes(10)):
        model = put_model(f"{store}/elmo.tar.gz", tmp_path, padding)
        for _ in range(2):
            succeeded(run_here("bilm info", model))
            n_copies.append(len(list(cache.rglob("elmo.tar.gz"))))
    assert n_copies == [1, 1, 2, 2]
    assert_fails(run_here("bilm info", f"{store}/none"), f"{store}/none: cannot be read: ")


def test_training_from_a_store_equals_training_from_files_and_resumes(store, tmp_path):
    for path in (GOLDEN / "data" / "train").iterdir():
        put(f"{store}/train/{path.name}", path.read_bytes())
    text = f"{store}/train/*"
    run(tmp_path / "local", 4)
    run(tmp_path / "remote", 2, text)
    run(tmp_path / "remote", 4, text)
    assert_same_weights(tmp_path / "local", tmp_path / "remote")
    (name, *_) = sorted(path.name for path in (GOLDEN / "data" / "train").iterdir())
    put(f"{store}/train/{name}", get(f"{store}/train/{name}") + b"the\n")
    with pytest.raises(ValueError, match="the run in this folder was trained on"):
        run(tmp_path / "remote", 6, text)


@pytest.mark.parametrize("store", [pytest.param("s3", marks=pytest.mark.cluster)], indirect=True)
def test_missing_bucket_of_the_output_is_found_before_the_work(store, run_here, tmp_path):
    (tmp_path / "text").write_text("a b\n")
    output = "s3://other-bucket/vectors.npz"
    arguments = f"--model={CASE}", f"--input={tmp_path / 'text'}", f"--output={output}"
    assert_fails(run_here("bilm embed", *arguments), f"{output}: cannot be written")
    done = run_here("bilm vocab", "--input=s3://other-bucket/*.txt", f"--output={store}/v")
    assert_fails(done, "s3://other-bucket/*.txt: ")
