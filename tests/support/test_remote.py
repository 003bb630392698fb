"""URLs: names, secrets, errors, and the file systems of fsspec that need no server."""

import gzip
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from command_runs import assert_fails

from bilm.data.shards import resolve_shards
from bilm.data.stream import describe_shards
from bilm.data.text import lines_at, read_lines
from bilm.errors import DataError
from bilm.export.hdf5 import dump_weights
from bilm.support.files import new_folder, output_path, replacing
from bilm.support.imports import MissingExtraError
from bilm.support.remote import RemoteError, check_writable, matching, reading, stat, upload
from bilm.support.urls import is_url, name_of, require_local
from bilm.training.run_folder import RunFolder

URL = "s3://bucket/folder/text.txt"
LINES = [f"sentence {i}" for i in range(100_000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


def texts(shards):
    return [" ".join(words) for words in shards.sentences()]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (URL, True), ("https://host/a", True), ("HTTP://host", True), ("hf:owner/name", False),
        ("text.txt", False), ("/a://b", False), ("c://folder", False), ("a::b.txt", False),
    ],
)  # fmt: skip
def test_urls_are_recognized(path, expected):
    assert is_url(path) is expected


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/b.txt", "b.txt"), (URL, "text.txt"), ("s3://bucket/a?b#c", "a?b#c"),
        ("https://host/a/b.csv?signature=x/y#z", "b.csv"), ("s3://bucket", "bucket"),
    ],
)  # fmt: skip
def test_name_of_a_url_has_no_query(path, name):
    assert name_of(path) == name


def test_url_of_a_missing_package_names_the_extra(monkeypatch, run_here, tmp_path):
    for package in ("s3fs", "aiohttp"):
        monkeypatch.setitem(sys.modules, package, None)
    for url in (URL, "https://host/text.txt"):
        with pytest.raises(MissingExtraError, match=rf"{url}: .* '\.\[remote\]'"):
            list(read_lines(url))
    done = run_here("bilm vocab", f"--input={URL}", "--output", tmp_path / "vocab.txt")
    assert_fails(done, URL, "[remote]")


def test_folders_and_exports_must_be_local(stored_model):
    for write in (
        lambda: RunFolder(URL),
        lambda: dump_weights(stored_model, URL),
        lambda: new_folder(URL).__enter__(),
        lambda: require_local(URL, "it"),
    ):
        with pytest.raises(DataError, match=f"{URL}: found a URL, but .* must be a local"):
            write()


def test_temporary_files_of_a_url_are_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {output_path(f"s3://{bucket}/a/text.txt") for bucket in ("one", "other")}
    assert len(names) == 2
    assert all(path.parent == tmp_path and path.name.startswith("text.txt.") for path in names)


# --- the file systems of fsspec that need no server ---


@pytest.fixture(params=["memory", "file"])
def place(request, tmp_path):
    """The URL of an empty folder."""
    return f"file://{tmp_path}/place" if request.param == "file" else f"memory://{tmp_path.name}"


def test_files_of_other_schemes_are_written_listed_and_read(place, tmp_path):
    (tmp_path / "place" / "inner").mkdir(parents=True)
    urls = [f"{place}/{name}" for name in ("a.txt", "b.txt", "inner/c.txt")]
    for url in urls:
        check_writable(url)
        with replacing(url) as temporary:
            temporary.write_bytes(TEXT)
    assert [name_of(url) for url in matching(f"{place}/*.txt")] == ["a.txt", "b.txt"]
    shards = resolve_shards(f"{place}/*.txt")
    assert texts(shards) == LINES * 2
    start = TEXT.index(b"sentence 77777\n")
    assert list(lines_at(shards.paths[1], shards.on_bad_utf8, [start])) == ["sentence 77777"]
    with reading(urls[1]) as file:
        file.seek(-6, 2)
        assert file.read() == b"99999\n"
    assert stat(urls[0]).size == len(TEXT)


def test_interrupted_write_keeps_the_earlier_file(place, tmp_path, monkeypatch):
    (tmp_path / "place").mkdir()
    url = f"{place}/a.txt"
    (tmp_path / "old").write_bytes(b"old\n")
    upload(tmp_path / "old", url)

    def interrupted(source, out):
        out.write(b"new\n")
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.copyfileobj", interrupted)
    with pytest.raises(KeyboardInterrupt):
        upload(tmp_path / "old", url)
    assert texts(resolve_shards(url)) == ["old"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [("memory://missing/a.txt", "no file matches"), ("unknown://a/b", "cannot be used")],
)
def test_wrong_address_is_one_line(url, expected):
    with pytest.raises(RemoteError, match=f"^{url}: {expected}[^\n]*$"):
        resolve_shards(url)


# --- web servers ---


class Quiet(SimpleHTTPRequestHandler):
    """A web server that does not answer ranges."""

    encodings: ClassVar[set[str]] = set()

    def log_message(self, *_):
        self.encodings.add(self.headers["Accept-Encoding"])


def test_text_of_a_web_server_is_read(tmp_path):
    pytest.importorskip("aiohttp")
    (tmp_path / "text.txt").write_bytes(TEXT)
    (tmp_path / "text.gz").write_bytes(gzip.compress(TEXT))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        for name in ("text.txt?version=1", "text.gz"):
            assert texts(resolve_shards(f"{address}/{name}")) == LINES
        (described,) = describe_shards([f"{address}/text.txt"])
        assert described.startswith(f"text.txt, {len(TEXT)} bytes, ")
        with pytest.raises(RemoteError, match=rf"^{address}/none.txt: cannot be read: [^\n]*$"):
            list(read_lines(f"{address}/none.txt"))
        with pytest.raises(RemoteError, match="cannot be written; expected"):
            check_writable(f"{address}/a.txt")
        server.shutdown()
    assert Quiet.encodings == {"identity"}
