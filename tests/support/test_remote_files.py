"""Files in an object store and on web servers: an S3 server on loopback whose answers are cut,
refused or throttled. Requires the packages of `.venv-engines`."""

import gzip
import re
import signal
import subprocess
import sys
import textwrap
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice

import numpy as np
import pytest
from object_server import BUCKET, CREDENTIALS, Proxy, client, s3_server

from bilm.data.dataset import LMDataset
from bilm.data.shards import Shards, resolve_shards
from bilm.data.stream import SHARD_BYTES, describe_shards, read_references
from bilm.data.text import read_lines
from bilm.data.vocabulary import Vocabulary
from bilm.support import remote
from bilm.support.remote import MAX_BLOCK, MIN_BLOCK, RemoteError, open_reader, writing

s3fs = pytest.importorskip("s3fs")
pytest.importorskip("moto")
pytestmark = pytest.mark.cluster

LINES = [f"sentence {i} of the text with some more words ." for i in range(60_000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()  # more than ten of the smallest ranges
URL = f"s3://{BUCKET}/text"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of an S3 server with a bucket of three shards."""
    with s3_server(tmp_path_factory.mktemp("moto") / "log") as address:
        client(address).create_bucket(Bucket=BUCKET)
        yield address


@pytest.fixture
def proxy(server, monkeypatch):
    """A proxy in front of the server, which the AWS client uses."""
    found = Proxy(server)
    for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL": found.address}).items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()  # instances keep the address
    for k in range(3):
        client(server).put_object(Bucket=BUCKET, Key=f"text/{k}.txt", Body=TEXT)
    yield found
    found.close()


@pytest.fixture
def store(server):
    return client(server)


def keys(store):
    return {found["Key"] for found in store.list_objects_v2(Bucket=BUCKET)["Contents"]}


def unfinished(store):
    return store.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])


def lines_of(url):
    return [text for _, text in read_lines(url)]


def ranges(proxy):
    return [head for head in proxy.requests if head.startswith("GET") and "range:" in head.lower()]


# --- listing and reading ---


def test_listing_does_not_request_each_file(proxy, store):
    for k in range(30):
        store.put_object(Bucket=BUCKET, Key=f"many/{k:02}.txt", Body=b"a\n")
    found = remote.matching(f"s3://{BUCKET}/many/*.txt")
    assert found == [f"s3://{BUCKET}/many/{k:02}.txt" for k in range(30)]
    assert len(proxy.requests) < 6


def test_text_is_read_in_few_ranges(proxy):
    assert lines_of(f"{URL}/0.txt") == LINES
    assert 1 < len(ranges(proxy)) <= 6  # the ranges double


def test_seeking_requests_only_the_ranges_that_are_read(proxy):
    shards = Shards([f"{URL}/0.txt"])
    start = TEXT.index(LINES[50_000].encode())
    found = next(iter(shards.lines(0, start, 50_000)))
    assert found == (50_001, start, start + len(LINES[50_000]) + 1, LINES[50_000])
    (first, second) = (re.search(r"bytes=(\d+)-(\d+)", head, re.I) for head in ranges(proxy))
    assert int(first[1]) == 0 and int(first[2]) < MIN_BLOCK
    assert int(second[1]) == start and int(second[2]) - start < MIN_BLOCK


def test_reader_agrees_with_a_local_file_at_any_position(proxy, tmp_path):
    (tmp_path / "text").write_bytes(TEXT)
    with open_reader(f"{URL}/0.txt") as there, open(tmp_path / "text", "rb") as here:
        places = [(0, 0, 9), (-7, 2, 99), (MIN_BLOCK - 3, 0, 7), (5, 1, 3), (1, 0, 1)]
        places += [(2 * MIN_BLOCK, 0, MAX_BLOCK), (len(TEXT) + 9, 0, 5)]
        for offset, whence, n in places:
            assert there.seek(offset, whence) == here.seek(offset, whence)
            assert there.read(n) == here.read(n)


@pytest.mark.parametrize("where", [0, 1000, 100_000])
def test_connections_dropped_in_a_shard_lose_and_double_nothing(proxy, where):
    proxy.cut_after, proxy.n_cuts, proxy.pattern = 400 + where, 5, "GET .*text/1.txt"
    assert lines_of(f"{URL}/1.txt") == LINES
    assert proxy.n_cuts == 0


def test_throttled_requests_are_repeated(proxy):
    proxy.n_refused, proxy.pattern = 6, "text/2.txt"
    assert lines_of(f"{URL}/2.txt") == LINES
    assert proxy.n_refused == 0


def test_connections_that_never_recover_end_with_one_error(proxy, monkeypatch):
    monkeypatch.setattr(remote, "WAITS", (0.1,))
    monkeypatch.setattr(remote, "S3_RETRIES", 2)
    proxy.cut_after, proxy.n_cuts, proxy.pattern = 1000, 10**6, "GET .*text/1.txt"
    with pytest.raises(RemoteError, match=rf"^{URL}/1.txt: cannot be read: [^\n]*$"):
        lines_of(f"{URL}/1.txt")


def test_references_of_several_shards_are_read(proxy):
    shards = resolve_shards(f"{URL}/*.txt")
    starts = [(2, 40_000), (0, 7), (2, 3), (1, 59_999)]
    references = [k * SHARD_BYTES + TEXT.index(f"sentence {i} ".encode()) for k, i in starts]
    assert read_references(shards, np.array(references)) == [LINES[i] for _, i in starts]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_resumed_reader_of_windows_continues_in_the_middle_of_a_shard(
    proxy, store, tmp_path, ending
):
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nsentence\n")
    for k in range(3):
        content = gzip.compress(TEXT) if ending else TEXT
        store.put_object(Bucket=BUCKET, Key=f"shards{ending}/{k}.txt{ending}", Body=content)
    shards = resolve_shards(f"s3://{BUCKET}/shards{ending}/*.txt{ending}")

    def windows(position=None):
        vocab = Vocabulary(tmp_path / "vocab.txt")
        text = LMDataset(shards, vocab, shuffle_on_load=True, shuffle_buffer=500)
        return text.iter_placed_batches(64, 20, position)

    before = list(islice(windows(), 621))  # about 80,000 of 180,000 sentences, more than a shard
    proxy.requests.clear()
    again = list(islice(windows(before[600][1].position), 20))
    assert [trace.sources for _, trace in again] == [trace.sources for _, trace in before[601:]]
    for (found, _), (expected, _) in zip(again, before[601:], strict=True):
        assert np.array_equal(found["token_ids"], expected["token_ids"])
    if not ending:  # compressed text is read from its start
        asked = [re.search(r"range: bytes=(\d+)-(\d+)", head, re.I) for head in ranges(proxy)]
        assert sum(int(found[2]) - int(found[1]) for found in asked) < 0.8 * len(TEXT)


def test_version_of_a_shard_is_part_of_its_description(proxy, store):
    before = describe_shards([f"{URL}/0.txt"])
    store.put_object(Bucket=BUCKET, Key="text/0.txt", Body=TEXT[:-2] + b"!\n")  # of equal size
    after = describe_shards([f"{URL}/0.txt"])
    assert before != after
    assert all(name.startswith(f"0.txt, {len(TEXT)} bytes, ") for (name,) in (before, after))


def test_shard_that_changes_while_it_is_read_is_an_error(proxy, store):
    lines = read_lines(f"{URL}/0.txt")
    assert next(lines) == (1, LINES[0])
    store.put_object(Bucket=BUCKET, Key="text/0.txt", Body=TEXT.upper())
    with pytest.raises(RemoteError, match=r"0.txt: .*has changed while it was read"):
        list(lines)


def test_shard_that_changes_after_it_was_listed_is_an_error(proxy, store):
    shards = resolve_shards(f"{URL}/*.txt")
    store.put_object(Bucket=BUCKET, Key="text/1.txt", Body=TEXT.upper())
    with pytest.raises(RemoteError, match=r"1.txt: has changed since it was listed"):
        list(shards.texts())


def test_name_with_pattern_characters_is_found(proxy, store):
    store.put_object(Bucket=BUCKET, Key="odd/a[1].txt", Body=TEXT)
    assert remote.matching(f"s3://{BUCKET}/odd/a[1].txt") == [f"s3://{BUCKET}/odd/a[1].txt"]
    assert lines_of(f"s3://{BUCKET}/odd/a[1].txt") == LINES


# --- errors ---


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (f"s3://{BUCKET}/missing.txt", "it does not exist"),
        (f"s3://{BUCKET}/missing-*.txt", "no file matches"),
        ("s3://other-bucket/text.txt", "bucket does not exist"),
        ("s3://other-bucket/*.txt", "the bucket does not exist"),
        (f"s3://{BUCKET}/text", r"is a folder; expected .*text/\*"),
        ("unknown://a/b", "expected s3://"),
        ("https://127.0.0.1:1/*.txt", r"cannot contain \*"),
    ],
)
def test_wrong_address_is_one_line(proxy, url, expected):
    with pytest.raises(RemoteError, match=expected) as error:
        resolve_shards(url)
    assert str(error.value).startswith(url) and "\n" not in str(error.value)


def test_unreachable_store_is_one_line(proxy, monkeypatch):
    monkeypatch.setattr(remote, "FIRST_WAITS", ())
    proxy.close()
    with pytest.raises(RemoteError, match="Could not connect"):
        remote.matching(f"{URL}/*.txt")


# --- writing ---


def test_object_appears_when_the_upload_is_complete(proxy, store, monkeypatch):
    monkeypatch.setattr(remote, "UPLOAD_BLOCK", 5 << 20)
    content = bytes(range(256)) * (12 << 12)
    with writing(f"s3://{BUCKET}/out/whole.bin") as file:
        for start in range(0, len(content), 1 << 20):
            file.write(content[start : start + (1 << 20)])
        assert len(unfinished(store)) == 1
        assert "out/whole.bin" not in keys(store)
    assert unfinished(store) == []
    assert store.get_object(Bucket=BUCKET, Key="out/whole.bin")["Body"].read() == content


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_interrupted_upload_leaves_no_object_and_no_parts(proxy, store, monkeypatch, error):
    monkeypatch.setattr(remote, "UPLOAD_BLOCK", 5 << 20)
    store.put_object(Bucket=BUCKET, Key="out/old.bin", Body=b"old")
    for name in ("new", "old"):
        with pytest.raises(error), writing(f"s3://{BUCKET}/out/{name}.bin") as file:
            file.write(b"x" * (6 << 20))
            raise error
    assert unfinished(store) == [] and "out/new.bin" not in keys(store)
    assert store.get_object(Bucket=BUCKET, Key="out/old.bin")["Body"].read() == b"old"


def test_upload_that_the_store_refuses_leaves_no_object(proxy, store, monkeypatch):
    monkeypatch.setattr(remote, "UPLOAD_BLOCK", 5 << 20)
    monkeypatch.setattr(remote, "S3_RETRIES", 2)
    with (
        pytest.raises(RemoteError, match=r"refused.bin: cannot be written"),
        writing(f"s3://{BUCKET}/out/refused.bin") as file,
    ):
        file.write(b"x" * (6 << 20))
        proxy.n_refused, proxy.pattern = 10**6, "(PUT|POST) .*refused.bin"
        file.write(b"x" * (6 << 20))
    assert "out/refused.bin" not in keys(store)


def test_upload_survives_throttling_and_dropped_connections(proxy, store, monkeypatch):
    monkeypatch.setattr(remote, "UPLOAD_BLOCK", 5 << 20)
    proxy.n_refused, proxy.pattern = 3, "(PUT|POST) .*out/slow.bin"
    with writing(f"s3://{BUCKET}/out/slow.bin") as file:
        file.write(b"x" * (6 << 20))
        proxy.cut_after, proxy.n_cuts, proxy.pattern = 0, 2, "PUT .*out/slow.bin"
        file.write(b"y" * (6 << 20))
    content = store.get_object(Bucket=BUCKET, Key="out/slow.bin")["Body"].read()
    assert content == b"x" * (6 << 20) + b"y" * (6 << 20)


def test_killed_upload_leaves_no_object(proxy, store):
    program = """
        import time
        from bilm.support import remote
        remote.UPLOAD_BLOCK = 5 << 20
        with remote.writing("s3://corpora/out/killed.bin") as file:
            file.write(b"x" * (6 << 20))
            print("started", flush=True)
            time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGKILL)
    assert "out/killed.bin" not in keys(store)
    for upload in unfinished(store):
        store.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])


def test_check_of_a_new_object_finds_a_missing_bucket_and_creates_nothing(proxy, store):
    remote.check_writable(f"s3://{BUCKET}/out/checked.bin")
    assert "out/checked.bin" not in keys(store) and unfinished(store) == []
    with pytest.raises(RemoteError, match="the bucket does not exist"):
        remote.check_writable("s3://other-bucket/a.bin")
    with pytest.raises(RemoteError, match="web addresses cannot be written"):
        remote.check_writable("https://127.0.0.1/a.bin")


# --- web servers ---


class Ranges(SimpleHTTPRequestHandler):
    """A file server; `has_ranges` selects whether it answers ranges, `cuts` counts answers that
    end early."""

    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments, state, **named):
        self.state = state
        super().__init__(*arguments, **named)

    def do_GET(self):
        try:
            with open(self.translate_path(self.path), "rb") as file:
                content = file.read()
        except FileNotFoundError:
            self.send_error(404)
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        start, end = 0, len(content)
        if asked and self.state["has_ranges"]:
            start, end = int(asked[1]), min(int(asked[2]) + 1, end)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        self.state["requests"].append((start, end))
        if self.state["cuts"]:
            self.state["cuts"] -= 1
            end, self.close_connection = start + (end - start) // 2, True
        self.wfile.write(content[start:end])

    def log_message(self, *_):
        pass


@pytest.fixture(params=[True, False], ids=["ranges", "no_ranges"])
def web(request, tmp_path):
    """A web server's address and state."""
    (tmp_path / "text.txt").write_bytes(TEXT)
    state = {"has_ranges": request.param, "requests": [], "cuts": 0}
    handler = partial(Ranges, directory=str(tmp_path), state=state)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", state
        server.shutdown()


def test_text_of_a_web_server_is_read_and_sought(web):
    address, state = web
    shards = resolve_shards(f"{address}/text.txt?version=1")
    assert list(shards.texts()) == LINES
    start = TEXT.index(LINES[50_000].encode())
    assert next(iter(shards.lines(0, start, 50_000)))[3] == LINES[50_000]
    if state["has_ranges"]:
        assert state["requests"][-1] == (start, start + MIN_BLOCK)
    assert describe_shards(shards)[0].startswith(f"text.txt, {len(TEXT)} bytes, ")


def test_connections_of_a_web_server_that_end_early_are_repeated(web):
    address, state = web
    state["cuts"] = 2
    assert lines_of(f"{address}/text.txt") == LINES
    assert state["cuts"] == 0


def test_missing_file_of_a_web_server_is_one_line(web):
    address, _ = web
    with pytest.raises(RemoteError, match=r"missing.txt: cannot be read: it does not exist$"):
        resolve_shards(f"{address}/missing.txt")
