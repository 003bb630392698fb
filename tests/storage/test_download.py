"""Models on a server of the loopback: fetched whole, once, or not at all."""

import base64
import shutil
import socket
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command_runs import assert_fails
from conftest import golden_cases
from odd_server import Handler, serving
from stored_files import OPTIONS, WEIGHTS, files_in, make_zip, resolve, same

from bilm.errors import BilmError, WeightsError
from bilm.storage.finding import download, registry
from bilm.storage.finding.cache import RECORD, cached
from bilm.storage.finding.download import ARCHIVE, fetch, local_copy
from bilm.storage.finding.download import OPTIONS as OPTIONS_FILE
from bilm.storage.finding.download import WEIGHTS as WEIGHT_FILE
from bilm.storage.finding.web import Patience

pytestmark = pytest.mark.usefixtures("cache")
OTHER_WEIGHTS = golden_cases("inference")[1].values[0] / "weights.hdf5"
HASTE = Patience(seconds=0.5, rate=1000)  # with servers that never come to an end alone


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
    monkeypatch.setattr("bilm.storage.finding.download.pieces", None)
    monkeypatch.setattr("os.access", lambda *_: False)  # a cache that can only be read serves too
    assert resolve(*urls) == found
    assert Handler.asked == ["/options.json", "/weights.hdf5"]


def test_download_logs_its_progress(server, caplog, monkeypatch):
    monkeypatch.setattr("bilm.storage.finding.web.LOG_SECONDS", 0)
    caplog.set_level("INFO", logger="absl")
    fetch(f"{server}/weights.hdf5", WEIGHT_FILE)
    assert f"{server}/weights.hdf5: downloading to" in caplog.messages[0]
    assert "0.1 MB of 0.1" in caplog.messages[-1]


def test_download_of_unknown_length_logs_no_total(server, caplog, monkeypatch):
    monkeypatch.setattr("bilm.storage.finding.web.LOG_SECONDS", 0)
    caplog.set_level("INFO", logger="absl")
    with pytest.raises(WeightsError):
        fetch(f"{server}/odd/short_without_length.hdf5", WEIGHT_FILE)
    assert caplog.messages[-1].endswith("hdf5: 0.1 MB")


def test_download_of_two_urls_with_equal_file_names(server, tmp_path):
    (tmp_path / "served" / "other").mkdir()
    shutil.copy(OTHER_WEIGHTS, tmp_path / "served" / "other" / "weights.hdf5")
    for path, original in (("weights.hdf5", WEIGHTS), ("other/weights.hdf5", OTHER_WEIGHTS)):
        found = fetch(f"{server}/{path}", WEIGHT_FILE)
        assert found.read_bytes() == original.read_bytes()


def test_any_file_of_a_url_is_copied_once(server, tmp_path):
    (tmp_path / "served" / "vocab.txt").write_text("the\n")
    copies = [Path(local_copy(f"{server}/vocab.txt")) for _ in range(2)]
    assert copies[0] == copies[1] and copies[0].read_text() == "the\n"
    assert Handler.asked == ["/vocab.txt"]
    assert local_copy("vocab.txt") == "vocab.txt"


def test_vocabulary_of_a_command_may_be_a_url(server, tmp_path, run_here):
    (tmp_path / "served" / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\n")
    (tmp_path / "text").write_text("the\n")
    arguments = f"--vocab={server}/vocab.txt", "--model=novels-en", f"--input={tmp_path / 'text'}"
    done = run_here("bilm score", "--quiet", *arguments)
    assert_fails(done, "vocab.txt: differs from", "at word 4")
    assert Handler.asked == ["/vocab.txt"]


def test_download_of_an_archive(server, tmp_path):
    make_zip(tmp_path / "served" / "12.zip", ["options.json", "model.hdf5"])
    assert same(resolve(f"{server}/12.zip"), (OPTIONS, WEIGHTS))
    with pytest.raises(WeightsError, match=r"start with .*HDF.*, expected a complete ZIP"):
        resolve(f"{server}/weights.hdf5")


@pytest.mark.parametrize("name", ["m.zip", "m.tar.gz"])
def test_download_of_a_damaged_archive_is_refused(name, server, tmp_path, cache):
    served = tmp_path / "served" / name
    if name == "m.zip":
        make_zip(served, ["options.json", "model.hdf5"])
    else:
        with tarfile.open(served, "w:gz", compresslevel=0) as file:
            file.add(OPTIONS, "options.json")
            file.add(WEIGHTS, "model.hdf5")
    content = bytearray(served.read_bytes())
    content[len(content) // 2] ^= 1
    served.write_bytes(content)
    with pytest.raises(WeightsError, match=r"received .* bytes .*, expected a complete ZIP or tar"):
        resolve(f"{server}/{name}")
    assert not files_in(cache)


def publish(tmp_path, monkeypatch, name, server):
    """Serve a model of the registry under the file names of its publisher; return their paths."""
    files, paths = [], []
    (own,) = registry.MODELS[name].downloads
    for file, content in zip(own, (OPTIONS, WEIGHTS), strict=True):
        url = file.urls[0]
        paths.append("/" + "/".join(url.split("/")[-2:]))
        (tmp_path / "served" / paths[-1][1:]).parent.mkdir(exist_ok=True)
        shutil.copy(content, tmp_path / "served" / paths[-1][1:])
        files.append(file._replace(urls=(server + paths[-1],)))
    model = registry.MODELS[name]._replace(downloads=(tuple(files),))
    monkeypatch.setitem(registry.MODELS, name, model)
    return paths


def test_download_of_published_names(server, tmp_path, monkeypatch):
    for name in ("medium", "original", "original_5.5b"):
        paths = publish(tmp_path, monkeypatch, name, server)
        assert same(resolve(name), (OPTIONS, WEIGHTS))
        assert Handler.asked[-2:] == paths


def test_download_with_another_size_is_refused(server, tmp_path, monkeypatch, cache):
    publish(tmp_path, monkeypatch, "small", server)
    with pytest.raises(WeightsError, match=r"expected 54,402,456"):
        resolve("small")
    assert not list(cache.rglob("*weights*"))


@pytest.mark.parametrize(
    ("path", "checks", "message"),
    [
        ("odd/short.hdf5", {}, "received 1,000 of 2,000 bytes; the connection ended early"),
        (
            "odd/short_without_length.hdf5",
            {},
            "bytes that start with .*, expected a complete HDF5",
        ),
        ("odd/short_chunked.hdf5", {}, "IncompleteRead"),
        ("odd/empty.hdf5", {}, "received 0 bytes"),
        ("odd/html.hdf5", {}, "start with b'<html>.*', expected a complete HDF5 file"),
        ("odd/packed.hdf5", {}, "compressed as gzip"),
        ("odd/endless.hdf5", {}, "exceeds the expected maximum of 1,000,000 bytes"),
        ("odd/huge.hdf5", {}, "has 1,099,511,627,776 bytes, expected at most 1,000,000"),
        ("odd/ftp.hdf5", {}, "unknown url type: ftp"),
        ("odd/file.hdf5", {}, "302.*file"),
        ("odd/circle.hdf5", {}, "302"),
        ("options.json", {}, "expected a complete HDF5 file"),
        ("weights.hdf5", {"size": 5}, "expected at most 5"),
        (
            "weights.hdf5",
            {"size": 999_999},
            "expected 999,999; the download may be truncated",
        ),
        ("weights.hdf5", {"sha256": "0" * 64}, "SHA-256"),
        ("missing.hdf5", {}, "404"),
        ("weights.hdf5", {"kind": ARCHIVE}, r"expected a complete ZIP or tar\.gz archive"),
        ("weights.hdf5", {"kind": OPTIONS_FILE}, "expected a JSON object"),
    ],
)
def test_incomplete_download_leaves_no_file(server, cache, path, checks, message):
    small = WEIGHT_FILE._replace(max_bytes=1_000_000)
    with pytest.raises(WeightsError, match=message) as error:
        fetch(f"{server}/{path}", **{"kind": small, **checks})
    assert server in str(error.value)
    assert "\n" not in str(error.value)
    assert not files_in(cache)


@pytest.mark.parametrize("path", ["silent", "stalled", "trickle", "trickle_of_header"])
def test_download_from_a_slow_server_times_out(server, cache, path):
    late = "timed out|no answer in 0.5 s|bytes per second, expected at least 1,000"
    with pytest.raises(WeightsError, match=late) as error:
        fetch(f"{server}/odd/{path}.hdf5", WEIGHT_FILE, patience=HASTE)
    assert server in str(error.value)
    assert not files_in(cache)


def test_download_from_an_unresponsive_server_times_out():
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


def test_download_follows_a_redirection(server):
    found = fetch(f"{server}/odd/moved.hdf5", WEIGHT_FILE)
    assert found.read_bytes() == WEIGHTS.read_bytes()


def test_concurrent_threads_download_once(server, cache, tmp_path, capsys):
    archive = make_zip(tmp_path / "m.zip", ["options.json", "model.hdf5"])
    sources = [(f"{server}/options.json", f"{server}/weights.hdf5"), (archive,)] * 8
    streams = sys.stdout, sys.stderr
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda source: resolve(*source), sources))
    assert all(same(pair, (OPTIONS, WEIGHTS)) for pair in found)
    assert (sys.stdout, sys.stderr) == streams and capsys.readouterr().out == ""
    assert sorted(Handler.asked) == ["/options.json", "/weights.hdf5"]  # once a process
    assert sorted(files_in(cache)) == sorted({*found[0], *found[1]})


def test_concurrent_processes_download_once(server, cache, tmp_path):
    """Two files, and an archive that both then want unpacked: one of them does the work."""
    make_zip(tmp_path / "served" / "12.zip", ["options.json", "model.hdf5"])
    script = (
        "import sys; sys.path[:0] = ['tests', 'tests/helpers']; from stored_files import resolve; "
    )
    script += "print(*resolve(*sys.argv[1:3]), *resolve(sys.argv[3]), sep='\\n')"
    urls = f"{server}/options.json", f"{server}/weights.hdf5", f"{server}/12.zip"
    command = [sys.executable, "-c", script, *urls]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=300)[0] for process in started]
    assert outputs[0] == outputs[1]
    assert sorted(Handler.asked) == ["/12.zip", "/options.json", "/weights.hdf5"]
    assert same([Path(line) for line in outputs[0].split()], (OPTIONS, WEIGHTS) * 2)
    assert len(files_in(cache)) == 5


def test_download_replaces_a_file_that_another_process_created(server, monkeypatch):
    url, pieces = f"{server}/weights.hdf5", download.pieces

    def pieces_and_a_rival(*arguments):
        yield from pieces(*arguments)
        rival = cached(url) / "weights.hdf5"
        shutil.copy(WEIGHTS, rival)

    monkeypatch.setattr(download, "pieces", pieces_and_a_rival)
    assert fetch(url, WEIGHT_FILE).read_bytes() == WEIGHTS.read_bytes()


def test_download_offline_without_a_copy_is_refused():
    with pytest.raises(WeightsError, match="not in the cache"):
        fetch("http://127.0.0.1:9/weights.hdf5", WEIGHT_FILE)


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://a b/c", "http://\udc80/"])
def test_download_of_an_invalid_url_is_refused(url, caplog):
    caplog.set_level("ERROR", logger="absl")  # pytest-xdist cannot send a log with half a character
    with pytest.raises(WeightsError, match="cannot be downloaded") as error:
        fetch(url, WEIGHT_FILE, patience=HASTE)
    assert "\n" not in str(error.value)


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
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


def test_cache_folder_that_is_not_writable_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "file"))
    with pytest.raises(WeightsError, match="BILM_CACHE"):
        fetch("http://127.0.0.1:9/weights.hdf5", WEIGHT_FILE)


@pytest.mark.parametrize("url", ["unknown://127.0.0.1/a.zip", "unknown://a/b"])
def test_download_of_an_unknown_scheme_is_refused(url):
    # Without fsspec, the error names the extra that installs it.
    with pytest.raises(BilmError, match="fsspec"):
        resolve(url)
    with pytest.raises(BilmError, match="fsspec"):
        resolve(OPTIONS, url)


def test_secrets_in_urls_are_masked_in_messages_and_records(server, cache, caplog):
    caplog.set_level("INFO", logger="absl")
    host = server.removeprefix("http://")
    url = f"http://me:hunter2@{host}/{{}}?id=7&access_token=hunter3#t=hunter4"
    found = fetch(url.format("weights.hdf5"), WEIGHT_FILE)
    assert found.read_bytes() == WEIGHTS.read_bytes()
    assert f"***@{host}/weights.hdf5?id=7&access_token=***#***" in caplog.text
    assert "hunter" not in (found.parent / RECORD).read_text() + caplog.text
    for name in ("missing.hdf5", "odd/html.hdf5", "odd/short.hdf5"):
        with pytest.raises(WeightsError, match=r"access_token=\*\*\*") as error:
            fetch(url.format(name), WEIGHT_FILE)
        assert "hunter" not in str(error.value)


def test_user_and_password_of_a_url_are_sent_as_a_header(server, monkeypatch):
    sent = []

    def do_get(self):
        sent.append(self.headers["Authorization"])
        self.answer(WEIGHTS.read_bytes())

    monkeypatch.setattr(Handler, "do_GET", do_get)
    fetch(server.replace("http://", "http://me:a%40b@") + "/weights.hdf5", WEIGHT_FILE)
    assert sent == ["Basic " + base64.b64encode(b"me:a@b").decode()]
