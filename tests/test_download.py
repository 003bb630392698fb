"""Models on a server of the loopback: fetched whole, once, or not at all."""

import hashlib
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from stored_files import OPTIONS, WEIGHTS, files_in, make_zip, same

from bilm import source
from bilm.download import fetch
from bilm.errors import WeightsError
from bilm.source import resolve


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; `short` answers with half of what its header promises."""

    asked: ClassVar[list[str]] = []

    def do_GET(self):
        self.asked.append(self.path)
        if self.path.startswith("/short"):
            self.send_response(200)
            self.send_header("Content-Length", "2000")
            self.end_headers()
            self.wfile.write(b"x" * 1000)
        else:
            super().do_GET()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    for path in (OPTIONS, WEIGHTS):
        shutil.copy(path, folder)
    Handler.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


def test_download_once_then_offline(server, cache, capsys, monkeypatch):
    urls = f"{server}/options.json", f"{server}/weights.hdf5"
    found = resolve(*urls)
    assert same(found, (OPTIONS, WEIGHTS))
    assert sorted(files_in(cache)) == sorted(found)
    output = capsys.readouterr()
    assert output.out == ""  # it is for results
    assert urls[1] in output.err
    monkeypatch.setattr("bilm.download.keras.utils.get_file", None)
    monkeypatch.setattr("os.access", lambda *_: False)  # a cache that can only be read serves too
    assert resolve(*urls) == found
    assert Handler.asked == ["/options.json", "/weights.hdf5"]


def test_same_file_name_at_two_addresses(server, tmp_path):
    (tmp_path / "served" / "other").mkdir()
    (tmp_path / "served" / "other" / "weights.hdf5").write_bytes(b"other")
    assert fetch(f"{server}/weights.hdf5").read_bytes() == WEIGHTS.read_bytes()
    assert fetch(f"{server}/other/weights.hdf5").read_bytes() == b"other"


def test_url_of_an_archive(server, tmp_path):
    make_zip(tmp_path / "served" / "12.zip", ["options.json", "model.hdf5"])
    assert same(resolve(f"{server}/12.zip"), (OPTIONS, WEIGHTS))
    with pytest.raises(WeightsError, match=r"no folder and no ZIP"):
        resolve(f"{server}/weights.hdf5")


def test_published_names(server, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "PUBLISHED", server)
    content = WEIGHTS.read_bytes()
    checks = {"small": (len(content), hashlib.sha256(content).hexdigest())}
    monkeypatch.setattr(source, "CHECKS", checks)
    for directory in source.NAMES.values():
        folder = tmp_path / "served" / directory
        folder.mkdir()
        shutil.copy(OPTIONS, folder / f"elmo_{directory}_options.json")
        shutil.copy(WEIGHTS, folder / f"elmo_{directory}_weights.hdf5")
    for name, directory in source.NAMES.items():
        assert same(resolve(name), (OPTIONS, WEIGHTS))
        base = f"/{directory}/elmo_{directory}"
        assert Handler.asked[-2:] == [f"{base}_options.json", f"{base}_weights.hdf5"]


def test_published_weights_that_changed(server, tmp_path, monkeypatch, cache):
    monkeypatch.setattr(source, "PUBLISHED", server)
    directory = source.NAMES["small"]
    folder = tmp_path / "served" / directory
    folder.mkdir()
    shutil.copy(OPTIONS, folder / f"elmo_{directory}_options.json")
    shutil.copy(WEIGHTS, folder / f"elmo_{directory}_weights.hdf5")
    with pytest.raises(WeightsError, match=r"expected 54,402,456"):
        resolve("small")
    assert not list(cache.rglob("*weights*"))


@pytest.mark.parametrize(
    ("path", "checks", "message"),
    [
        ("short.hdf5", {}, "1000 out of 2000 bytes"),
        ("weights.hdf5", {"size": 5}, "expected 5"),
        ("weights.hdf5", {"sha256": "0" * 64}, "SHA-256"),
        ("missing.hdf5", {}, "404"),
    ],
)
def test_what_is_not_whole_leaves_nothing(server, cache, path, checks, message):
    with pytest.raises(WeightsError, match=message) as error:
        fetch(f"{server}/{path}", **checks)
    assert server in str(error.value)
    assert "\n" not in str(error.value)
    assert not files_in(cache)


def test_offline_without_a_copy():
    with pytest.raises(WeightsError, match="not in the cache"):
        fetch("http://127.0.0.1:9/weights.hdf5")


def test_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "file"))
    with pytest.raises(WeightsError, match="BILM_CACHE"):
        fetch("http://127.0.0.1:9/weights.hdf5")


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/a.zip", "file:///etc/passwd", "s3://bucket/a"])
def test_other_kinds_of_address(url):
    with pytest.raises(WeightsError, match="expected http or https"):
        resolve(url)
    with pytest.raises(WeightsError, match="expected http or https"):
        resolve(OPTIONS, url)
