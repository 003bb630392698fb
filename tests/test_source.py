"""What stands for a model, on disk and on a server of the loopback."""

import hashlib
import shutil
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import numpy as np
import pytest
from conftest import golden_cases

from bilm import BidirectionalLanguageModel, source
from bilm.download import fetch
from bilm.errors import WeightsError
from bilm.source import resolve

CASE = golden_cases("inference")[0].values[0]
OPTIONS, WEIGHTS = CASE / "options.json", CASE / "weights.hdf5"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; `short` answers with half of what its header promises."""

    requests: ClassVar[list[str]] = []

    def do_GET(self):
        self.requests.append(self.path)
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
    Handler.requests = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


def same(found, expected):
    return [p.read_bytes() for p in found] == [p.read_bytes() for p in expected]


def make_zip(path, names, weights=WEIGHTS):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            kind = OPTIONS if name.endswith(".json") else weights
            file.write(kind, name)
    return path


def test_two_files_and_a_folder(tmp_path):
    assert resolve(OPTIONS, WEIGHTS) == (OPTIONS, WEIGHTS)
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(OPTIONS, folder)
    with pytest.raises(WeightsError, match="found none, expected one"):
        resolve(folder)
    shutil.copy(WEIGHTS, folder / "model.hdf5")
    shutil.copy(WEIGHTS, folder / "model_softmax.hdf5")  # no candidate
    assert same(resolve(folder), (OPTIONS, WEIGHTS))
    shutil.copy(WEIGHTS, folder / "other.hdf5")
    with pytest.raises(WeightsError, match=r"model\.hdf5, .*other\.hdf5"):
        resolve(folder)


@pytest.mark.parametrize("folder", ["", "147/"])
def test_archive(tmp_path, cache, folder):
    names = [f"{folder}options.json", f"{folder}model.hdf5", f"{folder}README"]
    archive = make_zip(tmp_path / "147.zip", names)
    found = resolve(archive)
    assert same(found, (OPTIONS, WEIGHTS))
    assert all(cache in path.parents for path in found)
    model = BidirectionalLanguageModel(archive)
    ids = np.ones((1, 3, model.options.char_cnn.max_characters_per_token))
    expected = BidirectionalLanguageModel(OPTIONS, WEIGHTS)(ids)["lm_embeddings"]
    np.testing.assert_array_equal(model(ids)["lm_embeddings"], expected)


def test_archive_that_climbs_stays_in_the_cache(tmp_path, cache):
    archive = make_zip(tmp_path / "m.zip", ["../../options.json", "/tmp/../evil.hdf5"])
    for path in resolve(archive):
        assert cache in path.resolve().parents
    assert not (tmp_path.parent / "options.json").exists()


def test_archive_that_explodes(tmp_path, cache):
    zeros = tmp_path / "zeros"
    with open(zeros, "wb") as file:
        file.truncate(64 << 20)
    archive = make_zip(tmp_path / "bomb.zip", ["options.json", "model.hdf5"], zeros)
    with pytest.raises(WeightsError, match=r"model\.hdf5 unpacks to 67,108,864 bytes"):
        resolve(archive)
    assert not list(cache.glob("*/weights.hdf5"))


def test_archive_cut_short(tmp_path):
    archive = make_zip(tmp_path / "m.zip", ["options.json", "model.hdf5"])
    whole = archive.read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightsError, match="no ZIP archive"):
        resolve(tmp_path / "cut.zip")
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 255
    (tmp_path / "damaged.zip").write_bytes(damaged)
    with pytest.raises(WeightsError, match="not a whole ZIP"):
        resolve(tmp_path / "damaged.zip")


def test_download_once_then_offline(server):
    urls = f"{server}/options.json", f"{server}/weights.hdf5"
    assert same(resolve(*urls), (OPTIONS, WEIGHTS))
    assert len(Handler.requests) == 2
    assert same(resolve(*urls), (OPTIONS, WEIGHTS))
    assert len(Handler.requests) == 2  # from the cache


def test_url_of_an_archive(server, tmp_path):
    make_zip(tmp_path / "served" / "12.zip", ["options.json", "model.hdf5"])
    assert same(resolve(f"{server}/12.zip"), (OPTIONS, WEIGHTS))


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
    for name in source.NAMES:
        assert same(resolve(name), (OPTIONS, WEIGHTS))


@pytest.mark.parametrize(
    ("path", "checks", "message"),
    [
        ("short.hdf5", {}, "cannot be fetched"),
        ("weights.hdf5", {"size": 5}, "expected 5"),
        ("weights.hdf5", {"sha256": "0" * 64}, "SHA-256"),
        ("missing.hdf5", {}, "404"),
    ],
)
def test_what_is_not_whole_leaves_nothing(server, cache, path, checks, message):
    with pytest.raises(WeightsError, match=message) as error:
        fetch(f"{server}/{path}", **checks)
    assert server in str(error.value)
    assert not [p for p in cache.rglob("*") if p.is_file()]


def test_offline_without_a_copy():
    with pytest.raises(WeightsError, match="not in the cache"):
        fetch("http://127.0.0.1:9/weights.hdf5")


def test_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "file"))
    with pytest.raises(WeightsError, match="BILM_CACHE"):
        fetch("http://127.0.0.1:9/weights.hdf5")


def test_nothing_of_that_name():
    with pytest.raises(WeightsError, match=r"original_5\.5b"):
        resolve("smal")
