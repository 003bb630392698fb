"""Models on a server of the loopback: fetched whole, once, or not at all."""

import hashlib
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import golden_cases
from odd_server import Handler, serving
from stored_files import OPTIONS, WEIGHTS, files_in, make_zip, same

from bilm.errors import WeightsError
from bilm.storage import download, registry
from bilm.storage.cache import cached
from bilm.storage.download import ARCHIVE, Known, fetch
from bilm.storage.download import OPTIONS as OPTIONS_FILE
from bilm.storage.download import WEIGHTS as WEIGHT_FILE
from bilm.storage.locate import resolve
from bilm.storage.web import Patience

OTHER_WEIGHTS = golden_cases("inference")[1].values[0] / "weights.hdf5"
HASTE = Patience(seconds=0.5, rate=1000)  # with servers that never come to an end alone


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def server(tmp_path):
    with serving(tmp_path / "served") as address:
        yield address


def test_download_once_then_offline(server, cache, capsys, monkeypatch):
    urls = f"{server}/options.json", f"{server}/weights.hdf5"
    found = resolve(*urls)
    assert same(found, (OPTIONS, WEIGHTS))
    assert sorted(files_in(cache)) == sorted(found)
    assert capsys.readouterr().out == ""  # it is for results
    monkeypatch.setattr("bilm.storage.download.pieces", None)
    monkeypatch.setattr("os.access", lambda *_: False)  # a cache that can only be read serves too
    assert resolve(*urls) == found
    assert Handler.asked == ["/options.json", "/weights.hdf5"]


def test_the_log_says_what_is_fetched(server, caplog, monkeypatch):
    monkeypatch.setattr("bilm.storage.web.LOG_SECONDS", 0)
    caplog.set_level("INFO", logger="absl")
    fetch(f"{server}/weights.hdf5", WEIGHT_FILE)
    assert f"{server}/weights.hdf5: downloading to" in caplog.messages[0]
    assert "0.1 MB of 0.1" in caplog.messages[-1]


def test_same_file_name_at_two_addresses(server, tmp_path):
    (tmp_path / "served" / "other").mkdir()
    shutil.copy(OTHER_WEIGHTS, tmp_path / "served" / "other" / "weights.hdf5")
    for path, original in (("weights.hdf5", WEIGHTS), ("other/weights.hdf5", OTHER_WEIGHTS)):
        found = fetch(f"{server}/{path}", WEIGHT_FILE)
        assert found.read_bytes() == original.read_bytes()


def test_url_of_an_archive(server, tmp_path):
    make_zip(tmp_path / "served" / "12.zip", ["options.json", "model.hdf5"])
    assert same(resolve(f"{server}/12.zip"), (OPTIONS, WEIGHTS))
    with pytest.raises(WeightsError, match=r"start with .*HDF.*, expected a whole ZIP"):
        resolve(f"{server}/weights.hdf5")


def test_published_names(server, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "ENGLISH", server)
    content = WEIGHTS.read_bytes()
    checks = {"small": (len(content), hashlib.sha256(content).hexdigest())}
    monkeypatch.setattr(registry, "CHECKS", checks)
    for directory in registry.ENGLISH_NAMES.values():
        folder = tmp_path / "served" / directory
        folder.mkdir()
        shutil.copy(OPTIONS, folder / f"elmo_{directory}_options.json")
        shutil.copy(WEIGHTS, folder / f"elmo_{directory}_weights.hdf5")
    for name, directory in registry.ENGLISH_NAMES.items():
        assert same(resolve(name), (OPTIONS, WEIGHTS))
        base = f"/{directory}/elmo_{directory}"
        assert Handler.asked[-2:] == [f"{base}_options.json", f"{base}_weights.hdf5"]


def test_published_weights_that_changed(server, tmp_path, monkeypatch, cache):
    monkeypatch.setattr(registry, "ENGLISH", server)
    directory = registry.ENGLISH_NAMES["small"]
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
        ("odd/short.hdf5", {}, "received 1,000 of 2,000 bytes; cut short"),
        (
            "odd/short_without_length.hdf5",
            {},
            "bytes that start with .*, expected a whole HDF5",
        ),
        ("odd/short_chunked.hdf5", {}, "IncompleteRead"),
        ("odd/empty.hdf5", {}, "received 0 bytes"),
        ("odd/html.hdf5", {}, "start with b'<html>.*', expected a whole HDF5 file"),
        ("odd/packed.hdf5", {}, "compressed as gzip"),
        ("odd/endless.hdf5", {}, "more than 1,000,000 bytes, expected at most that"),
        ("odd/huge.hdf5", {}, "has 1,099,511,627,776 bytes, expected at most 1,000,000"),
        ("odd/ftp.hdf5", {}, "unknown url type: ftp"),
        ("odd/file.hdf5", {}, "302.*file"),
        ("odd/circle.hdf5", {}, "302"),
        ("options.json", {}, "expected a whole HDF5 file"),
        ("weights.hdf5", {"known": Known(size=5)}, "expected at most 5"),
        ("weights.hdf5", {"known": Known(size=999_999)}, "expected 999,999; cut short"),
        ("weights.hdf5", {"known": Known(sha256="0" * 64)}, "SHA-256"),
        ("missing.hdf5", {}, "404"),
        ("weights.hdf5", {"kind": ARCHIVE}, "expected a whole ZIP archive"),
        ("weights.hdf5", {"kind": OPTIONS_FILE}, "expected a JSON object"),
    ],
)
def test_what_is_not_whole_leaves_nothing(server, cache, path, checks, message):
    small = WEIGHT_FILE._replace(max_bytes=1_000_000)
    with pytest.raises(WeightsError, match=message) as error:
        fetch(f"{server}/{path}", **{"kind": small, **checks})
    assert server in str(error.value)
    assert "\n" not in str(error.value)
    assert not files_in(cache)


@pytest.mark.parametrize("path", ["silent", "stalled", "trickle", "trickle_of_header"])
def test_a_server_that_takes_for_ever_is_left(server, cache, path):
    late = "timed out|no answer in 0.5 s|bytes per second, expected at least 1,000"
    with pytest.raises(WeightsError, match=late) as error:
        fetch(f"{server}/odd/{path}.hdf5", WEIGHT_FILE, patience=HASTE)
    assert server in str(error.value)
    assert not files_in(cache)


def test_a_server_that_does_not_take_the_call():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        callers = [socket.socket() for _ in range(4)]  # they fill its queue
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(full.getsockname())
        with pytest.raises(WeightsError, match=r"timed out|no answer"):
            fetch(f"http://127.0.0.1:{full.getsockname()[1]}/a", WEIGHT_FILE, patience=HASTE)
        for caller in callers:
            caller.close()


def test_a_redirection_is_followed(server):
    found = fetch(f"{server}/odd/moved.hdf5", WEIGHT_FILE)
    assert found.read_bytes() == WEIGHTS.read_bytes()


def test_threads_that_fetch_at_once(server, cache, tmp_path, capsys):
    archive = make_zip(tmp_path / "m.zip", ["options.json", "model.hdf5"])
    sources = [(f"{server}/options.json", f"{server}/weights.hdf5"), (archive,)] * 8
    streams = sys.stdout, sys.stderr
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda source: resolve(*source), sources))
    assert all(same(pair, (OPTIONS, WEIGHTS)) for pair in found)
    assert (sys.stdout, sys.stderr) == streams and capsys.readouterr().out == ""
    assert sorted(Handler.asked) == ["/options.json", "/weights.hdf5"]  # once a process
    assert sorted(files_in(cache)) == sorted({*found[0], *found[1]})


def test_processes_that_fetch_at_once(server, cache, tmp_path):
    """Two files, and an archive that both then want unpacked: one of them does the work."""
    make_zip(tmp_path / "served" / "12.zip", ["options.json", "model.hdf5"])
    script = "import sys; from bilm.storage.locate import resolve; "
    script += "print(*resolve(*sys.argv[1:3]), *resolve(sys.argv[3]), sep='\\n')"
    urls = f"{server}/options.json", f"{server}/weights.hdf5", f"{server}/12.zip"
    command = [sys.executable, "-c", script, *urls]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=300)[0] for process in started]
    assert outputs[0] == outputs[1]
    assert sorted(Handler.asked) == ["/12.zip", "/options.json", "/weights.hdf5"]
    assert same([Path(line) for line in outputs[0].split()], (OPTIONS, WEIGHTS) * 2)
    assert len(files_in(cache)) == 5


def test_a_file_that_another_process_fetched_meanwhile_is_replaced(server, monkeypatch):
    url, pieces = f"{server}/weights.hdf5", download.pieces

    def pieces_and_a_rival(*arguments):
        yield from pieces(*arguments)
        rival = cached(url) / "weights.hdf5"
        shutil.copy(WEIGHTS, rival)

    monkeypatch.setattr(download, "pieces", pieces_and_a_rival)
    assert fetch(url, WEIGHT_FILE).read_bytes() == WEIGHTS.read_bytes()


def test_offline_without_a_copy():
    with pytest.raises(WeightsError, match="not in the cache"):
        fetch("http://127.0.0.1:9/weights.hdf5", WEIGHT_FILE)


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://a b/c", "http://\udc80/"])
def test_what_is_no_address(url, caplog):
    caplog.set_level("ERROR", logger="absl")  # pytest-xdist cannot send a log with half a character
    with pytest.raises(WeightsError, match="cannot be downloaded") as error:
        fetch(url, WEIGHT_FILE, patience=HASTE)
    assert "\n" not in str(error.value)


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.delenv("BILM_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    for given, expected in (("/there", "/there"), ("not/there", None), ("", None)):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert cached("key").parent == Path(expected or tmp_path / ".cache") / "bilm"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    cached("key")  # the system knows the user's home; or does not:
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(WeightsError, match="no home folder; set BILM_CACHE"):
        cached("key")


def test_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "file"))
    with pytest.raises(WeightsError, match="BILM_CACHE"):
        fetch("http://127.0.0.1:9/weights.hdf5", WEIGHT_FILE)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/a.zip", "file:///etc/passwd", "s3://bucket/a"])
def test_other_kinds_of_address(url):
    with pytest.raises(WeightsError, match="expected http or https"):
        resolve(url)
    with pytest.raises(WeightsError, match="expected http or https"):
        resolve(OPTIONS, url)
