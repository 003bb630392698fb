"""Names of models: those in the package, and those of repositories, here on the loopback."""

import json
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
from bilm.support.files import sha256_of

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def server(tmp_path, monkeypatch):
    with serving(tmp_path / "served") as address:
        monkeypatch.setattr(registry, "NLPL", address)
        local = registry.File(ARCHIVE, (f"{address}/seqvec.zip",))
        model = registry.MODELS["seqvec"]._replace(downloads=((local,),))
        monkeypatch.setitem(registry.MODELS, "seqvec", model)
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


FAILURES = {  # at the first address, and what the message says
    "none.hdf5": "HTTP Error 404",
    "odd/gone_for_ever.hdf5": "HTTP Error 410",
    "odd/html.hdf5": "expected a complete HDF5 file",
    "odd/short.hdf5": "received 1,000 of 2,000 bytes",
    "other.hdf5": "expected",  # another size or another hash
    "http://127.0.0.1:9/weights.hdf5": "Connection refused",
    "http://no-such-host.invalid/weights.hdf5": "cannot be downloaded",
}


@pytest.mark.parametrize("known", ["nothing", "size", "hash"])
@pytest.mark.parametrize("first", FAILURES)
def test_registry_next_address_is_used_after_each_kind_of_failure(first, known, server, log):
    (server / "other.hdf5").write_bytes(WEIGHTS.read_bytes() + b"x")
    if first == "other.hdf5" and known == "nothing":
        pytest.skip("nothing shows that this file is another one")
    address = registry.NLPL
    first = first if "://" in first else f"{address}/{first}"
    size = WEIGHTS.stat().st_size if known == "size" else None
    sha256 = sha256_of(WEIGHTS) if known == "hash" else None
    file = registry.File(WEIGHT_FILE, (first, f"{address}/weights.hdf5"), size, sha256)
    found = registry._fetched(file, "name")
    assert found.read_bytes() == WEIGHTS.read_bytes()
    assert read_record(found.parent)["url"] == f"{address}/weights.hdf5"
    (line,) = [line for line in log.text.splitlines() if "trying" in line]
    assert first in line and line.endswith(f"trying {address}/weights.hdf5")


def test_registry_slow_server_leads_to_the_next_address(server, monkeypatch):
    from bilm.storage.finding import download
    from bilm.storage.finding.web import Patience

    address = registry.NLPL
    pieces = download.pieces
    quick = Patience(0.3, 1 << 20)
    monkeypatch.setattr(download, "pieces", lambda url, n, patience: pieces(url, n, quick))
    file = registry.File(WEIGHT_FILE, (f"{address}/odd/silent.hdf5", f"{address}/weights.hdf5"))
    assert registry._fetched(file, "name").read_bytes() == WEIGHTS.read_bytes()


def test_registry_error_names_every_address_that_failed(server):
    address = registry.NLPL
    urls = f"{address}/none.hdf5", f"{address}/odd/short.hdf5"
    message = r"name: no address works: .*/none\.hdf5: .*404.*; .*/short\.hdf5: received 1,000"
    with pytest.raises(WeightsError, match=message):
        registry._fetched(registry.File(WEIGHT_FILE, urls), "name")


def test_registry_moved_file_is_downloaded_from_its_new_place(server):
    file = registry.File(WEIGHT_FILE, (f"{registry.NLPL}/odd/moved.hdf5",))
    assert registry._fetched(file, "name").read_bytes() == WEIGHTS.read_bytes()


def test_registry_second_alternative_is_used_if_a_file_of_the_first_is_missing(server, monkeypatch):
    address = registry.NLPL
    make_zip(server / "whole.zip", ["options.json", "weights.hdf5"])
    downloads = (
        (
            registry.File(JSON_FILE, (f"{address}/options.json",)),
            registry.File(WEIGHT_FILE, (f"{address}/none.hdf5",)),
        ),
        (registry.File(ARCHIVE, (f"{address}/whole.zip",)),),
    )
    model = registry.MODELS["seqvec"]._replace(downloads=downloads)
    monkeypatch.setitem(registry.MODELS, "seqvec", model)
    found = resolve("seqvec")
    assert same(found, (OPTIONS, WEIGHTS))
    offline(monkeypatch)
    assert resolve("seqvec") == found


def test_registry_file_of_published_models_is_valid():
    """Names are distinct and simple; facts have a source; addresses and hashes are well formed."""
    assert len(registry.MODELS) > 10 and not set(registry.MODELS) & set(registry.packaged())
    for name, model in registry.MODELS.items():
        assert re.fullmatch(r"[a-z][a-z0-9_.-]*", name) and model.name == name
        for text in (model.language, model.code, model.trained_on, model.citation, model.source):
            assert text.strip() == text != ""
        assert model.licence is None or model.licence.strip()
        for files in model.downloads:
            kinds = [file.kind for file in files]
            assert kinds in ([JSON_FILE, WEIGHT_FILE], [ARCHIVE])
            for file in files:
                assert file.urls and len(set(file.urls)) == len(file.urls)
                assert all(re.match(r"https?://[\w.-]+/", url) for url in file.urls)
                assert file.size is None or file.size > 1000
                assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)


def test_registry_page_of_models_lists_every_published_model():
    page = (Path(registry.__file__).parents[3] / "docs" / "models.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([\w.-]+)` \| ([^|]+) \|", page, re.MULTILINE))
    for name, model in registry.MODELS.items():
        assert rows[name] == f"{model.language}: {model.trained_on}", name


def test_models_are_listed_by_language_and_checked(server, monkeypatch, run_here):
    address = registry.NLPL
    file = registry.File(ARCHIVE, (f"{address}/none.zip", f"{address}/weights.hdf5"))
    model = registry.MODELS["ru-news"]._replace(downloads=((file,),))
    monkeypatch.setattr(registry, "MODELS", {"ru-news": model})
    done = run_here("bilm models", "--language", "russian")
    assert done.returncode == 0 and done.stdout.startswith("ru-news: Russian, Russian WMT news")
    done = run_here("bilm models", "--language", "ru", "--check", "--json")
    (found,) = json.loads(done.stdout)
    states = [each["state"] for each in found["downloads"][0][0]["addresses"]]
    assert done.returncode == 0 and "404" in states[0] and states[1] == "works"
    other = file._replace(urls=file.urls[1:], size=10)
    monkeypatch.setattr(registry, "MODELS", {"x": model._replace(downloads=((other,),))})
    done = run_here("bilm models", "--check")
    assert done.returncode == 1 and "expected 10" in done.stdout
    done = run_here("bilm models", "--language", "xx")
    assert done.returncode == 1 and "no published model; languages: Russian (ru)" in done.stderr


def test_registry_seqvec_opens(server):
    inside = ["uniref50_v2/options.json", "uniref50_v2/weights.hdf5"]
    make_zip(server / "seqvec.zip", inside)
    assert same(resolve("seqvec"), (OPTIONS, WEIGHTS))


def test_download_that_changed_on_the_server_gives_a_warning(server, log):
    (url,) = registry.MODELS["seqvec"].urls
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
