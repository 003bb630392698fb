"""Names of models: those in the package, and those of repositories, here on the loopback."""

import os
import shutil

import pytest
from odd_server import Handler, serving
from stored_files import OPTIONS, WEIGHTS, make_zip, resolve, same

from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import WeightsError
from bilm.storage.finding import registry
from bilm.storage.finding.cache import entries, read_record
from bilm.storage.finding.download import ARCHIVE, fetch
from bilm.storage.finding.download import OPTIONS as JSON_FILE
from bilm.storage.finding.download import WEIGHTS as WEIGHT_FILE
from bilm.support.files import sha256_of

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def server(tmp_path, monkeypatch):
    with serving(tmp_path / "served") as address:
        monkeypatch.setattr(registry, "NLPL", address)
        (file,) = registry.MODELS["seqvec"]
        local = file._replace(urls=(f"{address}/seqvec.zip",))
        monkeypatch.setitem(registry.MODELS, "seqvec", (local,))
        for collection in registry.COLLECTIONS:
            (tmp_path / "served" / str(collection)).mkdir()
        yield tmp_path / "served"


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """A model in the package, as `novels-en` may be."""
    folder = tmp_path / "models" / "novels-en"
    folder.mkdir(parents=True)
    shutil.copy(OPTIONS, folder)
    shutil.copy(WEIGHTS, folder)
    for name in ("weights_softmax.hdf5", "vocab.txt", "README.md"):
        (folder / name).write_text("x")
    (tmp_path / "models" / ".cache").mkdir()  # no model
    monkeypatch.setattr(registry, "PACKAGED", folder.parent)
    return folder


def offline(monkeypatch):
    monkeypatch.setattr("bilm.storage.finding.download.pieces", None)


def test_registry_packaged_model_opens_by_name(packaged, cache, tmp_path, monkeypatch):
    offline(monkeypatch)
    assert resolve("novels-en") == (packaged / "options.json", packaged / "weights.hdf5")
    assert ElmoEmbedder("novels-en").embed_sentence(["a", "b"]).shape[1] == 2
    assert registry.names()[0] == "novels-en" and not cache.exists()
    with pytest.raises(WeightsError, match=r"nor a model of this name; did you mean novels-en\?"):
        resolve("novel-en")
    here = tmp_path / "here" / "novels-en"
    shutil.copytree(packaged, here)
    monkeypatch.chdir(here.parent)
    assert resolve("novels-en")[0].samefile(here / "options.json")  # before the name


def test_registry_unknown_name_suggests_a_similar_one():
    names = r"Names: .*small, .*seqvec, nlpl:NUMBER, hf:OWNER/NAME\[@REVISION\]"
    with pytest.raises(WeightsError, match=rf"did you mean original\? {names}"):
        resolve("orginal")
    nothing = "found neither a file or folder of this path nor a model of this name; names: "
    with pytest.raises(WeightsError, match=f"a/b/c: {nothing}"):
        resolve("a/b/c")


def test_registry_nlpl_number_in_the_second_collection(server, monkeypatch):
    make_zip(server / "11" / "144.zip", ["options.json", "model.hdf5"])
    found = resolve("nlpl:144")
    assert same(found, (OPTIONS, WEIGHTS))
    assert Handler.asked == ["/20/144.zip", "/11/144.zip"]
    assert {entry.names[0] for entry in entries()} == {"nlpl:144"}
    offline(monkeypatch)
    assert resolve("nlpl:144") == found
    assert len(entries("nlpl:*")) == 2  # the archive and what was unpacked


def test_registry_nlpl_first_collection_takes_precedence(server):
    for collection in registry.COLLECTIONS:
        make_zip(server / str(collection) / "7.zip", ["options.json", "model.hdf5"])
    resolve("nlpl:7")
    assert Handler.asked == ["/20/7.zip"]


def test_registry_nlpl_missing_number_is_refused(server, monkeypatch):
    with pytest.raises(WeightsError, match=r"nlpl:9: neither .*/20/9\.zip nor .*/11/9\.zip exists"):
        resolve("nlpl:9")
    for name in ("nlpl:", "nlpl:../7", "nlpl:x"):
        with pytest.raises(WeightsError, match="the number is missing, expected a name"):
            resolve(name)
    monkeypatch.setattr(registry, "NLPL", "http://127.0.0.1:9")
    with pytest.raises(WeightsError, match=r"/20/9\.zip: not in the cache, and cannot be"):
        resolve("nlpl:9")


@pytest.mark.parametrize("sha256", [None, "of the file"])
def test_registry_next_address_serves_the_same_content(server, sha256):
    """After a missing file; with a SHA-256 also after any other failure."""
    address = registry.NLPL
    sha256 = sha256 and sha256_of(server / "weights.hdf5")
    urls = f"{address}/none.hdf5", f"{address}/odd/short.hdf5", f"{address}/weights.hdf5"
    file = registry.File(WEIGHT_FILE, urls[:: 1 if sha256 else 2], sha256=sha256)
    found = registry._fetched(file, "name")
    assert found.read_bytes() == WEIGHTS.read_bytes()
    assert len(Handler.asked) == len(file.urls)
    with pytest.raises(WeightsError, match="received 1,000 of 2,000 bytes"):
        registry._fetched(file._replace(urls=urls[:2]), "name")


def test_registry_seqvec_opens(server):
    inside = ["uniref50_v2/options.json", "uniref50_v2/weights.hdf5"]
    make_zip(server / "seqvec.zip", inside)
    assert same(resolve("seqvec"), (OPTIONS, WEIGHTS))


def test_download_that_changed_on_the_server_gives_a_warning(server, log):
    (url,) = registry.MODELS["seqvec"][0].urls
    archive = make_zip(server / "seqvec.zip", ["options.json", "model.hdf5"])
    copy = fetch(url, ARCHIVE)
    first = read_record(copy.parent)
    assert first["bytes"] == archive.stat().st_size and first["source"] == url
    copy.unlink()
    fetch(url, ARCHIVE)  # the same again
    assert "has changed" not in log.text
    copy.unlink()
    make_zip(server / "seqvec.zip", ["options.json", "model.hdf5", "other.json"])
    assert fetch(url, ARCHIVE).read_bytes() == (server / "seqvec.zip").read_bytes()
    assert f"{url}: has changed since {first['fetched']}: sha256 was {first['sha256']}" in log.text


def test_download_that_changed_on_disk_is_refused(server):
    url = registry.NLPL + "/options.json"
    copy = fetch(url, JSON_FILE)
    n_bytes = copy.stat().st_size
    copy.write_text("{}")
    with pytest.raises(WeightsError, match=rf"has 2 bytes, but {n_bytes} were downloaded .*remove"):
        fetch(url, JSON_FILE)


def test_download_without_a_record_is_used(server, monkeypatch):
    """As caches of older versions have it; so does one whose record is damaged."""
    url = registry.NLPL + "/weights.hdf5"
    copy = fetch(url, WEIGHT_FILE)
    (record,) = (path for path in copy.parent.iterdir() if path != copy)
    offline(monkeypatch)
    record.write_text("{")
    assert fetch(url, WEIGHT_FILE) == copy
    os.unlink(record)
    assert fetch(url, WEIGHT_FILE) == copy
