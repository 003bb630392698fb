"""Archives of each kind, and models of other programs."""

import gzip
import io
import shutil
import tarfile
import zipfile

import pytest
from manylangs_files import write_model
from stored_files import OPTIONS, WEIGHTS, files_in, make_zip, resolve, same

from bilm.errors import WeightsError
from bilm.storage.stored_model import open_model

pytestmark = pytest.mark.usefixtures("cache")


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
def test_tar_archive_is_unpacked_into_the_cache(tmp_path, cache, name, inside):
    members = {inside + key: value for key, value in MODEL.items()}
    archive = make_tar(tmp_path / name, ({inside: None} if inside else {}) | members)
    found = resolve(archive)
    assert same(found, (OPTIONS, WEIGHTS)) and all(cache in path.parents for path in found)
    archive_time = archive.stat().st_mtime_ns
    assert resolve(archive) == found and archive.stat().st_mtime_ns == archive_time


def test_manylangs_archive_unpacks_its_configuration_only(tmp_path):
    """The configuration is found through the path in `config.json`; other files stay packed."""
    folder = write_model(tmp_path / "top")
    (folder / "conf").mkdir()
    (folder / "model.json").rename(folder / "conf" / "model.json")
    (folder / "config.json").write_text('{"config_path": "conf/model.json"}')
    (folder / "classifier.pkl").write_bytes(b"x")
    archive = open_model(shutil.make_archive(str(tmp_path / "m"), "zip", folder))
    assert archive.options == open_model(folder).options
    assert not list(archive.folder.glob("classifier.pkl"))


ALLENNLP = "fta/model.text_field_embedder.token_embedders.elmo."


def test_allennlp_archive_with_fta_files_is_refused(tmp_path, cache):
    """The files in fta/ hold the weights from before the model's training."""
    members = {
        "config.json": b"{}",
        "weights.th": b"x",
        f"{ALLENNLP}options_file": MODEL["options.json"],
        f"{ALLENNLP}weight_file": MODEL["weights.hdf5"],
    }
    archive = make_tar(tmp_path / "model.tar.gz", members)
    with pytest.raises(WeightsError, match=r"fta/ contains the ELMo weights from before its train"):
        resolve(archive)
    assert not files_in(cache)


FOREIGN = {
    "a TensorFlow Hub module": ["saved_model.pb", "tfhub_module.pb", "variables/variables.index"],
    "a TensorFlow SavedModel": ["saved_model.pb", "variables/variables.index"],
    "an AllenNLP model without ELMo": [
        "config.json",
        "weights.th",
        "vocabulary/tokens.txt",
    ],
    "a spaCy model": ["meta.json", "config.cfg", "tokenizer"],
    "a Keras model": ["model.keras"],
    "a PyTorch model of another kind": ["config.json", "pytorch_model.bin"],
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("packed", [False, True])
def test_foreign_model_is_recognized(tmp_path, cache, name, packed):
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


@pytest.mark.parametrize("below", ["3", "elmo/3"])
def test_parent_of_a_tensorflow_hub_module_is_recognized(tmp_path, below):
    module = tmp_path / "modules" / below
    module.mkdir(parents=True)
    for name in ("saved_model.pb", "tfhub_module.pb"):
        (module / name).write_bytes(b"x")
    with pytest.raises(WeightsError, match=r"a TensorFlow Hub module; .*tensorflow_hub"):
        resolve(tmp_path / "modules")


def test_foreign_file_is_recognized(tmp_path):
    (tmp_path / "weights.th").write_bytes(b"x")
    with pytest.raises(WeightsError, match=r"weights\.th: found a PyTorch model of another kind"):
        resolve(tmp_path / "weights.th")


HARMFUL = {
    "../options.json is a path out of": {"../options.json": b"{}", **MODEL},
    "/tmp/x is a path out of": {"/tmp/x": b"{}", **MODEL},
    "weights.hdf5 is not a regular file": MODEL | {"weights.hdf5": "/etc/passwd"},
    "options.json unpacks to 2,097,152 bytes": MODEL | {"options.json": b" " * (2 << 20)},
}


@pytest.mark.parametrize("message", HARMFUL)
def test_hostile_tar_archive_is_refused(tmp_path, cache, message):
    archive = make_tar(tmp_path / "m.tar", HARMFUL[message])
    with pytest.raises(WeightsError, match=message):
        resolve(archive)
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and p != archive]


def test_tar_bomb_is_refused(tmp_path, cache):
    archive = tmp_path / "bomb.tar.gz"
    make_tar(archive, MODEL | {"weights.hdf5": bytes(16 << 20)})
    with pytest.raises(WeightsError, match="unpacks to"):
        resolve(archive)
    assert not files_in(cache)


def test_tar_header_with_huge_size_is_refused(tmp_path):
    """For example the header of a long name, which `tarfile` reads at once."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    (tmp_path / "m.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))
    with pytest.raises(WeightsError, match=r"one of its headers declares 1,073,\d{3},\d{3} bytes"):
        resolve(tmp_path / "m.tar")


def test_truncated_tar_archive_is_an_error(tmp_path):
    whole = make_tar(tmp_path / "m.tar.gz", MODEL).read_bytes()
    for n in range(0, len(whole) - 20, 997):
        (tmp_path / f"{n}.tar.gz").write_bytes(whole[:n])
        with pytest.raises(WeightsError):
            resolve(tmp_path / f"{n}.tar.gz")


def test_nested_archive_is_not_opened(tmp_path):
    inner = make_zip(tmp_path / "inner.zip", ["options.json", "model.hdf5"])
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as file:
        file.write(inner, "inner.zip")
    with pytest.raises(WeightsError, match="found none"):
        resolve(tmp_path / "m.zip")
    (tmp_path / "m.gz").write_bytes(gzip.compress(b"x" * 100))
    with pytest.raises(WeightsError, match="neither a folder nor a ZIP"):
        resolve(tmp_path / "m.gz")
