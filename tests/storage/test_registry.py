"""Names of models: those in the package, and those of repositories, here on the loopback."""

import re
import shutil

import pytest
from odd_server import Handler, serving
from stored_files import CASE, OPTIONS, WEIGHTS, make_zip, resolve, same

from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import WeightsError
from bilm.storage.finding import download, locate, registry
from bilm.storage.finding.cache import entries
from bilm.support.files import sha256_of

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "RETRIES", 0)
    with serving(tmp_path / "served") as address:
        monkeypatch.setattr(registry, "NLPL", address)
        for collection in registry.COLLECTIONS:
            (tmp_path / "served" / str(collection)).mkdir()
        yield tmp_path / "served"


def publish(monkeypatch, *alternatives, **facts):
    addresses = [[f"{registry.NLPL}/{path}" for path in paths] for paths in alternatives]
    facts = {"size": None, "sha256": None, **facts}
    model = registry.MODELS["seqvec"]._replace(addresses=addresses, **facts)
    monkeypatch.setitem(registry.MODELS, "seqvec", model)


def test_registry_packaged_model_opens_by_name(cache, tmp_path, monkeypatch):
    folder = tmp_path / "models" / "novels-en"
    folder.mkdir(parents=True)
    for path in (OPTIONS, WEIGHTS):
        shutil.copy(path, folder)
    monkeypatch.setattr(locate, "PACKAGED", folder.parent)
    assert resolve("novels-en") == (folder / "options.json", folder / "weights.hdf5")
    assert ElmoEmbedder("novels-en").embed_sentence(["a", "b"]).shape[1] == 2
    assert not cache.exists()
    here = tmp_path / "here" / "novels-en"
    shutil.copytree(folder, here)
    monkeypatch.chdir(here.parent)
    assert resolve("novels-en")[0].samefile(here / "options.json")  # before the name


def test_registry_unknown_name_suggests_a_similar_one():
    names = r"Names: .*small, .*seqvec, nlpl:NUMBER, hf:OWNER/NAME\[@REVISION\]"
    with pytest.raises(WeightsError, match=rf"did you mean original\? {names}"):
        resolve("orginal")
    nothing = "found neither a file or folder of this path nor a model of this name; "
    for name in ("a/b/c", "nlpl:", "nlpl:../7"):
        with pytest.raises(WeightsError, match=f"{name}: {nothing}.*ames: "):
            resolve(name)


def test_registry_nlpl_number_is_in_one_of_two_collections(server, monkeypatch):
    make_zip(server / "11" / "144.zip", ["options.json", "model.hdf5"])
    found = resolve("nlpl:144")
    assert same(found, (OPTIONS, WEIGHTS))
    assert Handler.asked == ["/20/144.zip", "/11/144.zip"]
    assert resolve("nlpl:144") == found and len(Handler.asked) == 2
    assert [entry.source for entry in entries()] == ["nlpl:144"] * 2  # the archive and its files
    with pytest.raises(WeightsError, match=r"nlpl:9: no address works: .*/20/9\.zip.*/11/9\.zip"):
        resolve("nlpl:9")
    monkeypatch.setattr(registry, "NLPL", "http://127.0.0.1:9")
    with pytest.raises(WeightsError, match=r"/20/9\.zip: not in the cache") as error:
        resolve("nlpl:9")
    assert "/11/9.zip" not in str(error.value)  # only after an answer that 20/9.zip is missing


@pytest.mark.parametrize("first", ["none", "odd/html", "odd/short", "other"])
def test_registry_next_address_is_used_after_each_kind_of_failure(first, server, monkeypatch):
    (server / "other.hdf5").write_bytes(WEIGHTS.read_bytes() + b"x")
    addresses = [["options.json", f"{first}.hdf5"], ["options.json", "weights.hdf5"]]
    publish(monkeypatch, *addresses, sha256=sha256_of(WEIGHTS))
    assert same(resolve("seqvec"), (OPTIONS, WEIGHTS))


def test_registry_error_names_every_address_that_failed(server, monkeypatch):
    publish(monkeypatch, ["options.json", "none.hdf5"], ["none.json", "a.hdf5"], ["odd/short.zip"])
    message = r"seqvec: no address works: .*/none\.hdf5: .*404.*none\.json: .*404.*short\.zip: "
    with pytest.raises(WeightsError, match=message):
        resolve("seqvec")


def test_registry_name_of_a_model_on_the_hub(monkeypatch):
    asked = []
    monkeypatch.setattr(registry, "snapshot", lambda name: asked.append(name) or CASE)
    assert same(resolve("hf-elmo"), (OPTIONS, WEIGHTS)) and asked == ["hf:lysandre/elmo"]


def test_registry_file_of_published_models_is_valid():
    """Names are distinct and simple; facts have a source; addresses and hashes are well formed."""
    assert len(registry.MODELS) > 10 and not set(registry.MODELS) & set(locate.packaged())
    for name, model in registry.MODELS.items():
        assert re.fullmatch(r"[a-z][a-z0-9_.-]*", name)
        for text in (model.language, model.code, model.trained_on, model.citation, model.source):
            assert text.strip() == text != ""
        assert all(len(urls) in (1, 2) for urls in model.addresses) and model.addresses
        urls = [url for urls in model.addresses for url in urls]
        assert all(re.match(r"https?://[\w.-]+/|hf:[\w.-]+/[\w.-]+$", url) for url in urls)
        assert model.sha256 is None or re.fullmatch("[0-9a-f]{64}", model.sha256)


def test_models_are_listed(run_here):
    done = run_here("bilm models")
    assert done.returncode == 0 and "ru-news: Russian, Russian WMT news" in done.stdout
