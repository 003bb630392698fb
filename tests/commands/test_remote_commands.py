"""Commands on an object store, as a user runs them. Requires the packages of `.venv-engines`."""

import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import h5py
import numpy as np
import pytest
from command_runs import assert_fails, environment, run
from object_server import BUCKET, CREDENTIALS, Proxy, client, s3_server
from stored_files import CASE

s3fs = pytest.importorskip("s3fs")
pytest.importorskip("moto")
pandas = pytest.importorskip("pandas")
pytestmark = pytest.mark.cluster

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import kill  # noqa: E402

STORE = f"s3://{BUCKET}"
SENTENCES = [f"the {i} . sentence of a small text" for i in range(300)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("moto") / "log") as address:
        client(address).create_bucket(Bucket=BUCKET)
        yield address


@pytest.fixture
def proxy(server, tmp_path, monkeypatch, cache):
    """A proxy in front of the server; the working folder and the cache are temporary."""
    found = Proxy(server)
    for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL": found.address}).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    s3fs.S3FileSystem.clear_instance_cache()
    yield found
    found.close()


@pytest.fixture
def store(server):
    return client(server)


def put(store, key, content):
    store.put_object(Bucket=BUCKET, Key=key, Body=content)
    return f"{STORE}/{key}"


def get(store, key):
    return store.get_object(Bucket=BUCKET, Key=key)["Body"].read()


def keys(store, prefix):
    found = store.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
    return {entry["Key"] for entry in found.get("Contents", [])}


def put_model(store, name="elmo"):
    """Store the files of a small model below a prefix."""
    for path in CASE.iterdir():
        put(store, f"{name}/{path.name}", path.read_bytes())
    return f"{STORE}/{name}"


# --- training ---


def train(folder, text, vocabulary, steps=40):
    """Start `bilm train` with the options of `kill.write_input`."""
    arguments = {
        "input": text, "vocab": vocabulary, "options": folder.parent / "options.json",
        "output": folder, "n_gpus": 0, "n_steps": steps, "checkpoint_steps": 2, "log_steps": 1,
    }  # fmt: skip
    words = [f"--{name}={value}" for name, value in arguments.items()]
    command = [sys.executable, "-m", "bilm", "train", *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment())


def test_training_from_a_store_resumes_after_sigkill_bit_for_bit(proxy, store, tmp_path):
    few_layers = {"lstm": kill.OPTIONS["lstm"] | {"n_layers": 1}, "unroll_steps": 4}
    kill.write_input(tmp_path, kill.OPTIONS | few_layers)
    for name in ("0.txt", "1.txt", "2.txt", "vocab.txt"):
        put(store, f"train/{name}", (tmp_path / name).read_bytes())
    remote = f"{STORE}/train/[0-9].txt", f"{STORE}/train/vocab.txt"
    kill.finish(train(tmp_path / "straight", *remote))
    hits, draws = 0, random.Random(2)
    for step in (3, 16, 30):
        # One of the answers of each start is cut in the middle of a shard.
        proxy.cut_after, proxy.n_cuts, proxy.pattern = 500, 1, rf"GET .*train/{step % 3}.txt"
        process = train(tmp_path / "remote", *remote)
        hits += kill.kill_at(process, step, draws.uniform(0, 0.1))
    kill.finish(train(tmp_path / "remote", *remote))
    found = kill.compare(tmp_path / "straight", tmp_path / "remote", 40, hits)
    assert found.n_kills == 3
    assert (found.losses, found.values) == (0, 0)
    kill.finish(train(tmp_path / "local", tmp_path / "[0-9].txt", tmp_path / "vocab.txt"))
    losses = [kill.logged_losses(tmp_path / name) for name in ("local", "straight")]
    assert losses[0] == losses[1]


def test_training_does_not_resume_on_a_changed_object(proxy, store, tmp_path):
    kill.write_input(tmp_path)
    text = put(store, "changed/0.txt", (tmp_path / "0.txt").read_bytes())
    kill.finish(train(tmp_path / "run", text, tmp_path / "vocab.txt", steps=2))
    put(store, "changed/0.txt", (tmp_path / "0.txt").read_bytes().replace(b"w1 ", b"w2 "))
    process = train(tmp_path / "run", text, tmp_path / "vocab.txt", steps=4)
    assert "the run in this folder was trained on" in process.communicate()[1]
    assert process.returncode == 1


def test_folder_of_a_run_must_be_local(proxy, run_here):
    done = run_here("bilm train", "--input=a", "--vocab=b", f"--output={STORE}/run")
    assert_fails(done, "--output", "is a URL; expected a local path", status=2)


# --- text, vocabulary, tables ---


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_text_and_vocabulary_are_read_and_written_in_a_store(proxy, store, run_here, ending):
    rows = "".join(json.dumps({"text": text}) + "\n" for text in SENTENCES)
    source, text = put(store, "text/rows.jsonl", rows.encode()), f"{STORE}/text/whole.txt{ending}"
    done = run_here("bilm text", f"--input={source}", "--column=text", f"--output={text}")
    assert done.returncode == 0, done.stderr
    assert f"wrote {text}: 300 sentences" in done.stdout
    outputs = f"--output={STORE}/text/vocab.txt", f"--counts={STORE}/text/counts.tsv"
    done = run_here("bilm vocab", f"--input={text}", *outputs)
    assert done.returncode == 0, done.stderr
    words = get(store, "text/vocab.txt").decode().split()
    assert words[:3] == ["<S>", "</S>", "<UNK>"] and len(words) == 3 + 7 + 300
    assert get(store, "text/counts.tsv").startswith(b".\t300\n")
    assert os.listdir() == []  # nothing is left in the working folder


def test_input_of_a_web_server_is_read(run_here, tmp_path):
    (tmp_path / "served").mkdir()
    rows = "".join(json.dumps({"text": text}) + "\n" for text in SENTENCES)
    (tmp_path / "served" / "rows.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{httpd.server_port}/rows.jsonl.gz?token=secret"
        done = run_here("bilm text", f"--input={url}", "--column=text", "--output", tmp_path / "t")
        assert done.returncode == 0, done.stderr
        missing = run_here("bilm text", f"--input={url}", "--column=x", "--output", tmp_path / "x")
        httpd.shutdown()
    assert (tmp_path / "t").read_text().splitlines() == SENTENCES
    (error,) = (line for line in missing.stderr.splitlines() if ": error: " in line)
    assert "token=*** line 1: column 'x' is missing" in error


def test_output_does_not_replace_its_input(proxy, store, run_here):
    text = put(store, "text/own.txt", b"a b\n")
    done = run_here("bilm text", f"--input={text}", f"--output={text}")
    assert_fails(done, "own.txt: is also an input")


def test_wrong_access_key_is_one_line(tmp_path, monkeypatch):
    with s3_server(tmp_path / "log", INITIAL_NO_AUTH_ACTION_COUNT="2") as address:
        store = client(address)
        store.create_bucket(Bucket=BUCKET)
        url = put(store, "text.txt", b"a b\n")
        wrong = CREDENTIALS | {"AWS_ENDPOINT_URL": address, "AWS_SECRET_ACCESS_KEY": "wrong"}
        for name in (url, f"{STORE}/*.txt"):
            done = run("bilm vocab", f"--input={name}", "--output", tmp_path / "vocab.txt", **wrong)
            assert_fails(done, f"{name}: cannot be", "access denied", "check the credentials")


def test_missing_credentials_are_one_line(proxy, tmp_path):
    variables = {name: value for name, value in os.environ.items() if name not in CREDENTIALS}
    command = [sys.executable, "-m", "bilm", "vocab", f"--input={STORE}/a", "--output=vocab.txt"]
    env = variables | {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert_fails(done, f"{STORE}/a: cannot be read: Unable to locate credentials; set AWS_ACCESS")


# --- models and vectors ---


@pytest.fixture
def corpus(proxy, store, tmp_path):
    """The URL of a corpus of sentences and a local copy."""
    rows = "".join(json.dumps({"id": f"s{i}", "text": t}) + "\n" for i, t in enumerate(SENTENCES))
    (tmp_path / "rows.jsonl").write_text(rows)
    return put(store, "corpus/rows.jsonl", rows.encode()), tmp_path / "rows.jsonl"


COLUMNS = "--column=text", "--id_column=id", "--layers=top"


def embed_locally(run_here, path, output):
    done = run_here("bilm embed", f"--model={CASE}", f"--input={path}", f"--output={output}",
                    *COLUMNS)  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("form", ["parquet", "npz", "hdf5"])
def test_embeddings_of_a_store_equal_local_ones(proxy, store, run_here, corpus, tmp_path, form):
    remote, local = corpus
    embed_locally(run_here, local, tmp_path / f"local.{form}")
    output = f"{STORE}/vectors/all.{form}"
    done = run_here("bilm embed", f"--model={put_model(store)}", f"--input={remote}",
                    f"--output={output}", *COLUMNS)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = tmp_path / f"found.{form}"
    found.write_bytes(get(store, f"vectors/all.{form}"))
    if form == "parquet":
        here, there = (pandas.read_parquet(p) for p in (tmp_path / "local.parquet", found))
        pandas.testing.assert_frame_equal(here, there)
    elif form == "npz":
        assert found.read_bytes() == (tmp_path / "local.npz").read_bytes()
    else:
        with h5py.File(tmp_path / "local.hdf5") as here, h5py.File(found) as there:
            assert set(here) == set(there)
            assert all(np.array_equal(here[name], there[name]) for name in here)
    assert os.listdir() == []


def test_refused_upload_leaves_no_object_and_the_same_command_completes_it(
    proxy, store, run_here, corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr("bilm.support.remote.S3_RETRIES", 2)
    remote, local = corpus
    output = f"{STORE}/vectors/refused.parquet"
    arguments = f"--model={CASE}", f"--input={remote}", f"--output={output}", *COLUMNS
    # The check before the work starts an upload and aborts it; the second upload fails.
    proxy.cut_after, proxy.n_cuts = 0, 10**6
    proxy.pattern = r"PUT .*refused.parquet.*partNumber=1[\s\S]*Content-Length: \d{4}"
    done = run_here("bilm embed", *arguments)
    assert_fails(done, f"{output}: cannot be written")
    assert keys(store, "vectors/refused") == set()
    assert [name for name in os.listdir() if name.endswith(".parts")] == os.listdir()
    proxy.n_cuts = 0
    done = run_here("bilm embed", *arguments)
    assert done.returncode == 0, done.stderr
    assert "continuing after 1 finished parts" in done.stderr
    embed_locally(run_here, local, tmp_path / "local.parquet")
    (tmp_path / "found.parquet").write_bytes(get(store, "vectors/refused.parquet"))
    here, there = (pandas.read_parquet(tmp_path / f"{n}.parquet") for n in ("local", "found"))
    pandas.testing.assert_frame_equal(here, there)
    assert os.listdir() == []


def test_missing_bucket_of_the_output_is_found_before_the_work(proxy, run_here, corpus):
    output = "s3://other-bucket/vectors.parquet"
    done = run_here("bilm embed", f"--model={CASE}", f"--input={corpus[0]}", f"--output={output}",
                    *COLUMNS)  # fmt: skip
    assert_fails(done, f"{output}: cannot be written: the bucket does not exist")
    assert not any(h.startswith("GET") and "rows.jsonl" in h for h in proxy.requests)


def downloads(proxy):
    return [head for head in proxy.requests if head.startswith("GET") and "hdf5" in head]


def test_model_in_a_store_is_downloaded_once_for_each_version(proxy, store, run_here):
    model = put_model(store, "versions")
    counts = []
    for content in (None, None, b"\n"):
        if content is not None:
            options = (CASE / "options.json").read_bytes()
            put(store, "versions/options.json", options + content)
        done = run_here("bilm info", model)
        assert done.returncode == 0, done.stderr
        counts.append(len(downloads(proxy)))
    assert 0 < counts[0] == counts[1] < counts[2]


def test_archive_in_a_store_is_a_model(proxy, store, run_here, tmp_path):
    packed = shutil.make_archive(str(tmp_path / "elmo"), "gztar", CASE)
    url = put(store, "archives/elmo.tar.gz", Path(packed).read_bytes())
    done = run_here("bilm info", url)
    assert done.returncode == 0, done.stderr


def test_missing_model_is_one_line(proxy, run_here):
    done = run_here("bilm info", f"{STORE}/no-model")
    assert_fails(done, f"{STORE}/no-model: found neither an object nor a folder of this name")
