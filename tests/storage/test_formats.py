"""Formats told apart: archives of each kind, and models of other programs by their names."""

import gzip
import io
import shutil
import tarfile
import zipfile

import pytest
from manylangs_files import write_model
from stored_files import OPTIONS, WEIGHTS, files_in, make_zip, same

from bilm.errors import WeightsError
from bilm.storage.formats.known import FORMATS, read_options
from bilm.storage.locate import resolve


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make_tar(path, members):
    """Write an archive of contents by name; None is a folder, a string a link."""
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if content is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
            info.size = len(content) if isinstance(content, bytes) else 0
            file.addfile(info, io.BytesIO(content) if info.size else None)
    return path


MODEL = {"options.json": OPTIONS.read_bytes(), "weights.hdf5": WEIGHTS.read_bytes()}


@pytest.mark.parametrize("name", ["m.tar", "m.tar.gz"])
@pytest.mark.parametrize("inside", ["", "./", "a/"])
def test_tar(tmp_path, cache, name, inside):
    members = {inside + key: value for key, value in MODEL.items()}
    archive = make_tar(tmp_path / name, ({inside: None} if inside else {}) | members)
    found = resolve(archive)
    assert same(found, (OPTIONS, WEIGHTS)) and all(cache in path.parents for path in found)
    archive_time = archive.stat().st_mtime_ns
    assert resolve(archive) == found and archive.stat().st_mtime_ns == archive_time


@pytest.mark.parametrize("kind", ["zip", "gztar"])
@pytest.mark.parametrize("inside", ["", "144"])
def test_manylangs_in_an_archive(tmp_path, kind, inside):
    """Its configuration too, wherever `config.json` says; vocabularies and other files are left."""
    folder = write_model(tmp_path / "top" / inside)
    (folder / "conf").mkdir()
    (folder / "model.json").rename(folder / "conf" / "model.json")
    (folder / "config.json").write_text('{"config_path": "conf/model.json"}')
    (folder / "classifier.pkl").write_bytes(b"x")
    expected = read_options(*resolve(tmp_path / "top"))
    archive = shutil.make_archive(str(tmp_path / "m"), kind, tmp_path / "top")
    found = resolve(archive)
    assert read_options(*found) == expected
    assert not list(found[0].parent.glob("classifier.pkl"))


ALLENNLP = "fta/model.text_field_embedder.token_embedders.elmo."


def test_allennlp_archives_that_bring_their_elmo(tmp_path):
    members = {
        "config.json": b"{}",
        "weights.th": b"x",
        f"{ALLENNLP}options_file": MODEL["options.json"],
        f"{ALLENNLP}weight_file": MODEL["weights.hdf5"],
    }
    assert same(resolve(make_tar(tmp_path / "model.tar.gz", members)), (OPTIONS, WEIGHTS))
    members["fta/model.other.weight_file"] = MODEL["weights.hdf5"]
    with pytest.raises(WeightsError, match=r"expected one file of weights in fta/"):
        resolve(make_tar(tmp_path / "two.tar.gz", members))


FOREIGN = {
    "a TensorFlow Hub module": ["saved_model.pb", "tfhub_module.pb", "variables/variables.index"],
    "a TensorFlow SavedModel": ["saved_model.pb", "variables/variables.index"],
    "an AllenNLP model that brings no ELMo": ["config.json", "weights.th", "vocabulary/tokens.txt"],
    "a spaCy model": ["meta.json", "config.cfg", "tokenizer"],
    "a Keras model": ["model.keras"],
    "a PyTorch model of another kind": ["config.json", "pytorch_model.bin"],
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("packed", [False, True])
def test_models_of_other_programs_are_named(tmp_path, cache, name, packed):
    folder = tmp_path / "model"
    for file in FOREIGN[name]:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(b"x")
    if packed:
        folder = shutil.make_archive(str(tmp_path / "m"), "gztar", folder)
    with pytest.raises(WeightsError, match=name) as error:
        resolve(folder)
    assert str(folder) in str(error.value) and "\n" not in str(error.value)
    assert not files_in(cache)


def test_lone_files_of_other_programs_are_named(tmp_path):
    (tmp_path / "weights.th").write_bytes(b"x")
    with pytest.raises(WeightsError, match=r"weights\.th: holds a PyTorch model of another kind"):
        resolve(tmp_path / "weights.th")


HARMFUL = {
    "../options.json is a path out of": {"../options.json": b"{}", **MODEL},
    "/tmp/x is a path out of": {"/tmp/x": b"{}", **MODEL},
    "weights.hdf5 is a link or no plain file": MODEL | {"weights.hdf5": "/etc/passwd"},
    "options.json unpacks to 2,097,152 bytes": MODEL | {"options.json": b" " * (2 << 20)},
}


@pytest.mark.parametrize("message", HARMFUL)
def test_a_tar_archive_that_is_refused(tmp_path, cache, message):
    archive = make_tar(tmp_path / "m.tar", HARMFUL[message])
    with pytest.raises(WeightsError, match=message):
        resolve(archive)
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and p != archive]


def test_a_tar_archive_that_explodes(tmp_path, cache):
    archive = tmp_path / "bomb.tar.gz"
    make_tar(archive, MODEL | {"weights.hdf5": bytes(16 << 20)})
    with pytest.raises(WeightsError, match="unpacks to"):
        resolve(archive)
    assert not files_in(cache)


def test_a_header_of_a_tar_archive_that_states_a_huge_size(tmp_path):
    """Such as that of a long name, which is read as a whole."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    (tmp_path / "m.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))
    with pytest.raises(WeightsError, match=r"a header in it states 1,073,\d{3},\d{3} bytes"):
        resolve(tmp_path / "m.tar")


def test_every_cut_of_a_tar_archive_is_an_error(tmp_path):
    whole = make_tar(tmp_path / "m.tar.gz", MODEL).read_bytes()
    for n in range(0, len(whole) - 20, 997):
        (tmp_path / f"{n}.tar.gz").write_bytes(whole[:n])
        with pytest.raises(WeightsError):
            resolve(tmp_path / f"{n}.tar.gz")


def test_an_archive_in_another_is_not_opened(tmp_path):
    inner = make_zip(tmp_path / "inner.zip", ["options.json", "model.hdf5"])
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as file:
        file.write(inner, "inner.zip")
    with pytest.raises(WeightsError, match="found none"):
        resolve(tmp_path / "m.zip")
    (tmp_path / "m.gz").write_bytes(gzip.compress(b"x" * 100))
    with pytest.raises(WeightsError, match="no folder and no"):
        resolve(tmp_path / "m.gz")


def test_each_format_defines_what_the_seam_asks_for():
    asked = ["NAME", "PAIR", "HAS_SOFTMAX", "find", "owns", "files", "read_options", "open_tensors"]
    for format_ in FORMATS:
        assert all(hasattr(format_, name) for name in asked), format_.NAME
