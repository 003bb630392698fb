"""Models on a server of the loopback: downloaded whole, once, or not at all."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command_runs import assert_fails
from disk_faults import flip_bit
from odd_server import Handler, serving
from stored_files import OPTIONS, WEIGHTS, files_in, make_zip, resolve, same

from bilm.errors import BilmError, WeightsError
from bilm.options.schema import read_object
from bilm.storage.finding import download
from bilm.storage.finding.archive import check_archive
from bilm.storage.finding.cache import RECORD
from bilm.storage.finding.download import fetch, local_copy
from bilm.storage.stored_tensors import hdf5_tensors

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture(autouse=True)
def no_retries(monkeypatch):
    monkeypatch.setattr(download, "RETRIES", 0)


@pytest.fixture
def server(tmp_path):
    with serving(tmp_path / "served") as address:
        yield address


def test_download_once_then_offline(server, cache, capsys, log):
    urls = f"{server}/options.json", f"{server}/weights.hdf5"
    found = resolve(*urls)
    assert same(found, (OPTIONS, WEIGHTS))
    assert sorted(files_in(cache)) == sorted(found)
    assert f"{urls[1]}: downloading to" in log.text
    assert resolve(*urls) == found
    assert Handler.asked == ["/options.json", "/weights.hdf5"]
    assert capsys.readouterr().out == ""  # it is for results


def test_download_of_a_vocabulary_for_a_command(server, tmp_path, run_here):
    (tmp_path / "served" / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\n")
    (tmp_path / "text").write_text("the\n")
    arguments = f"--vocab={server}/vocab.txt", "--model=novels-en", f"--input={tmp_path / 'text'}"
    done = run_here("bilm score", "--quiet", *arguments)
    assert_fails(done, "vocab.txt: contains 4 words", "50,796")
    assert Path(local_copy(f"{server}/vocab.txt")).name == "vocab.txt"
    assert local_copy("vocab.txt") == "vocab.txt" and Handler.asked == ["/vocab.txt"]


@pytest.mark.parametrize(
    ("path", "checks", "message"),
    [
        ("odd/short.hdf5", {}, "IncompleteRead"),
        ("odd/short_without_length.hdf5", {}, "the downloaded file: .*truncated"),
        ("odd/html.hdf5", {}, "the downloaded file: an HTML page"),
        ("odd/file.hdf5", {}, "No connection adapters"),
        ("options.json", {}, "the downloaded file: "),
        ("weights.hdf5", {"sha256": "0" * 64}, "received a file of SHA-256 .*, expected 0{64}"),
        ("missing.hdf5", {}, "404"),
        ("damaged.zip", {"check": check_archive}, "cannot be unpacked"),
        ("weights.hdf5", {"check": read_object}, "found an HDF5 file"),
    ],
)
def test_wrong_download_leaves_no_file(server, cache, tmp_path, path, checks, message):
    flip_bit(make_zip(tmp_path / "served" / "damaged.zip", ["options.json", "model.hdf5"]))
    with pytest.raises(WeightsError, match=message) as error:
        fetch(f"{server}/{path}", **{"check": hdf5_tensors, **checks})
    assert str(error.value).startswith(f"{server}/{path}: ")
    assert "\n" not in str(error.value) and not files_in(cache)


@pytest.mark.parametrize("failure", [lambda self: self.answer(status=503), Handler.short])
def test_download_is_repeated_after_an_error_of_the_server(server, failure, monkeypatch):
    """Also after a connection that is closed in the middle of the file."""
    monkeypatch.setattr(download, "RETRIES", 1)

    def fail_once(self):
        Handler.once = Handler.moved
        failure(self)

    monkeypatch.setattr(Handler, "once", fail_once, raising=False)
    found = fetch(f"{server}/odd/once.hdf5", hdf5_tensors)
    assert found.read_bytes() == WEIGHTS.read_bytes()


def test_download_from_a_server_that_cannot_be_reached_is_not_repeated(monkeypatch, capfd):
    monkeypatch.setattr(download, "RETRIES", 3)
    waits = []
    monkeypatch.setattr("time.sleep", waits.append)
    message = r"0\.1:9/a: not in the cache.*: HTTPConnection[^()]*\([^()]*\): Failed.*refused"
    with pytest.raises(WeightsError, match=message):
        fetch("http://127.0.0.1:9/a")
    assert waits == [0] and "Retry" not in capfd.readouterr().err


def test_refused_archive_is_downloaded_again(server, cache, tmp_path):
    archive, names = tmp_path / "served" / "m.zip", ["options.json", "model.hdf5"]
    make_zip(archive, names, weights=OPTIONS)
    with pytest.raises(WeightsError, match=r"m\.zip: model\.hdf5: not a whole HDF5 file"):
        resolve(f"{server}/m.zip")
    assert not files_in(cache)
    make_zip(archive, names)
    assert same(resolve(f"{server}/m.zip"), (OPTIONS, WEIGHTS))


def test_concurrent_downloads_are_one(server, cache, tmp_path):
    """In threads, and in two processes that also unpack an archive."""
    make_zip(tmp_path / "served" / "12.zip", ["options.json", "model.hdf5"])
    urls = f"{server}/options.json", f"{server}/weights.hdf5"
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: resolve(*urls), range(8)))
    assert all(pair == found[0] for pair in found) and same(found[0], (OPTIONS, WEIGHTS))
    script = (
        "import sys; sys.path[:0] = ['tests', 'tests/helpers']; from stored_files import resolve; "
        "print(*resolve(sys.argv[1]), sep='\\n')"
    )
    command = [sys.executable, "-c", script, f"{server}/12.zip"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=300)[0] for process in started]
    assert outputs[0] == outputs[1]
    assert same([Path(line) for line in outputs[0].split()], (OPTIONS, WEIGHTS))
    assert sorted(Handler.asked) == ["/12.zip", "/options.json", "/weights.hdf5"]


@pytest.mark.parametrize(
    "url", ["http://", "http://[::1", "http://a b/c", "http://127.0.0.1:9/a", "unknown://a/b.zip"]
)
def test_download_of_a_wrong_url_is_one_line(url):
    with pytest.raises(BilmError, match="cannot be") as error:
        resolve(url)
    assert "\n" not in str(error.value)


def test_secrets_in_urls_are_sent_and_masked(server, log, monkeypatch):
    sent, get = [], Handler.do_GET

    def do_get(self):
        sent.append(self.headers["Authorization"])
        self.path = self.path.partition("?")[0]
        get(self)

    monkeypatch.setattr(Handler, "do_GET", do_get)
    host = server.removeprefix("http://")
    url = f"http://me:hunter2@{host}/{{}}?id=7&access_token=hunter3"
    found = fetch(url.format("weights.hdf5"), hdf5_tensors)
    assert found.read_bytes() == WEIGHTS.read_bytes() and sent == ["Basic bWU6aHVudGVyMg=="]
    for name in ("missing.hdf5", "odd/html.hdf5", "odd/short.hdf5"):
        with pytest.raises(WeightsError, match=r"access_token=\*\*\*") as error:
            fetch(url.format(name), hdf5_tensors)
        assert "hunter" not in str(error.value)
    assert "hunter" not in (found.parent / RECORD).read_text() + log.text
