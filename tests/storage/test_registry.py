"""Names of models: those in the package, and those of repositories, here on the loopback."""

import os
import re
import shutil
from pathlib import Path

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
from bilm.storage.finding.web import Patience
from bilm.support.files import sha256_of

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def server(tmp_path, monkeypatch):
    with serving(tmp_path / "served") as address:
        monkeypatch.setattr(registry, "NLPL", address)
        seqvec = registry.MODELS["seqvec"]
        (file,) = seqvec.versions[0]
        local = file._replace(urls=(f"{address}/seqvec.zip",))
        monkeypatch.setitem(registry.MODELS, "seqvec", seqvec._replace(versions=((local,),)))
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


BAD = {  # the reason for failing over, by the path of the address
    "none.hdf5": "HTTP Error 404",
    "odd/gone_410.hdf5": "HTTP Error 410",
    "odd/silent.hdf5": "timed out|no answer in 0.5 s",
    "odd/html.hdf5": "received 26 bytes, expected",
    "odd/short.hdf5": "has 2,000 bytes|received 1,000",
    "odd/circle.hdf5": "HTTP Error 302",
    "odd/wrong_hash.hdf5": "SHA-256 is .*, expected",
}


def weights_at(server, *urls):
    served = server / "weights.hdf5"
    size, sha256 = served.stat().st_size, sha256_of(served)
    return registry.File(WEIGHT_FILE, urls, size=size, sha256=sha256)


@pytest.mark.parametrize("bad", [*BAD, "refused", "unresolved"])
def test_registry_failover_from_a_dead_address(server, monkeypatch, log, bad):
    monkeypatch.setattr(registry, "PATIENCE", Patience(0.5, 1))
    address = registry.NLPL
    unreachable = {
        "refused": ("http://127.0.0.1:9/w.hdf5", "refused"),
        "unresolved": ("http://bilm.invalid/w.hdf5", "cannot be downloaded"),
    }
    url, reason = unreachable.get(bad) or (f"{address}/{bad}", BAD[bad])
    file = weights_at(server, url, f"{address}/weights.hdf5")
    found = registry._fetched(file, "name")
    assert found.read_bytes() == WEIGHTS.read_bytes()
    record = read_record(found.parent)
    assert record["source"] == "name" and record["url"] == file.urls[1]
    assert len(re.findall(reason, log.text)) == 1
    assert log.text.count(f"name: trying {file.urls[1]}") == 1


def test_registry_dead_addresses_are_one_error_line(server):
    urls = f"{registry.NLPL}/none.hdf5", "http://127.0.0.1:9/w.hdf5"
    with pytest.raises(WeightsError, match=r"^name: no address works: .*404") as caught:
        registry._fetched(weights_at(server, *urls), "name")
    message = str(caught.value)
    assert all(url in message for url in urls) and "\n" not in message


def test_registry_moved_address_is_followed(server):
    file = weights_at(server, f"{registry.NLPL}/odd/moved.hdf5")
    assert registry._fetched(file, "name").read_bytes() == WEIGHTS.read_bytes()


def test_registry_seqvec_second_layout_after_a_dead_archive(server, monkeypatch, log):
    address, seqvec = registry.NLPL, registry.MODELS["seqvec"]
    pair = (
        registry.File(JSON_FILE, (f"{address}/options.json",)),
        registry.File(WEIGHT_FILE, (f"{address}/weights.hdf5",)),
    )
    both = seqvec._replace(versions=(*seqvec.versions, pair))
    monkeypatch.setitem(registry.MODELS, "seqvec", both)
    found = resolve("seqvec")
    assert same(found, (OPTIONS, WEIGHTS)) and "seqvec.zip" in log.text
    offline(monkeypatch)
    assert resolve("seqvec") == found


def test_registry_file_is_valid():
    for name, model in registry.MODELS.items():
        assert re.fullmatch(r"[a-z0-9._-]+", name)
        assert model.language and model.citation and model.source.startswith("https://")
        assert model.versions
        for files in model.versions:
            kinds = [file.kind for file in files]
            assert kinds in ([JSON_FILE, WEIGHT_FILE], [ARCHIVE])
            for file in files:
                assert file.urls and len(set(file.urls)) == len(file.urls)
                assert all(re.match(r"https?://[\w.-]+/\S+$", url) for url in file.urls)
                assert file.size is None or file.size > 0
                assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)


def test_registry_models_are_listed_in_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for name, model in registry.MODELS.items():
        assert any(f"`{name}`" in row and model.language in row for row in rows), name


def test_registry_seqvec_opens(server):
    inside = ["uniref50_v2/options.json", "uniref50_v2/weights.hdf5"]
    make_zip(server / "seqvec.zip", inside)
    assert same(resolve("seqvec"), (OPTIONS, WEIGHTS))


def test_download_that_changed_on_the_server_gives_a_warning(server, log):
    (url,) = registry.MODELS["seqvec"].versions[0][0].urls
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
