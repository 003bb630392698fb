"""Models in ZIP and tar archives: unpacked into the cache once; hostile archives are refused."""

import gzip
import io
import tarfile
import zipfile

import pytest
from stored_files import OPTIONS, WEIGHTS, files_in, make_zip, resolve, same

from bilm.errors import BilmError, WeightsError
from bilm.storage.finding import archive as archives

pytestmark = pytest.mark.usefixtures("cache")
MODEL = {"options.json": OPTIONS.read_bytes(), "weights.hdf5": WEIGHTS.read_bytes()}
KINDS = ["m.zip", "m.tar", "m.tar.gz"]


def pack(path, members):
    """Write an archive of contents by name; in a tar archive, None is a folder, a string a link."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in members.items():
                info = zipfile.ZipInfo("x")
                info.filename = name  # as it is; the constructor would tidy it
                file.writestr(info, content, zipfile.ZIP_DEFLATED)
        return path
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


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("inside", ["", "./", "147/"])
def test_archive_is_unpacked_into_the_cache(tmp_path, cache, name, inside):
    folder = {inside: None} if inside and name != "m.zip" else {}
    archive = pack(tmp_path / name, folder | {inside + k: v for k, v in MODEL.items()})
    found = resolve(archive)
    assert same(found, (OPTIONS, WEIGHTS)) and all(cache in path.parents for path in found)
    archive_time = archive.stat().st_mtime_ns
    assert resolve(archive) == found and archive.stat().st_mtime_ns == archive_time


def test_archive_is_unpacked_once(tmp_path, cache):
    others = ["__MACOSX/._model.hdf5", "._model.hdf5", "model_softmax.hdf5", "corpus.hdf5"]
    archive = make_zip(tmp_path / "m.zip", ["options.json", "model.hdf5", "vocab.txt", *others])
    found = resolve(archive)
    beside = [found[1].with_name(name) for name in ("vocab.txt", "model_softmax.hdf5")]
    assert sorted(files_in(cache)) == sorted([*found, *beside])
    times = [p.stat().st_mtime_ns for p in found]
    assert resolve(archive) == found
    assert [p.stat().st_mtime_ns for p in found] == times
    make_zip(archive, ["options.json", "model.hdf5"])  # another archive of that name
    assert resolve(archive) != found


@pytest.mark.parametrize("kind", ["m.zip", "m.tar"])
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["options.json"], r"found none, expected one \.hdf5"),
        (["options.json", "a.hdf5", "b.hdf5"], r"found a\.hdf5, b\.hdf5"),
        (["a/options.json", "b/model.hdf5"], "found (a/options.json|none), expected"),
        (["../options.json", "../model.hdf5"], r"\.\./options\.json is a path outside"),
        (["options.json", "model.hdf5", "a/../../README"], r"a/\.\./\.\./README is a path outside"),
        (["options.json", "/tmp/model.hdf5"], r"/tmp/model\.hdf5 is a path outside"),
        (["options.json", "C:\\model.hdf5"], r"model\.hdf5 is a path outside"),
    ],
)
def test_hostile_or_incomplete_archive_is_refused(tmp_path, kind, names, message):
    archive = pack(tmp_path / kind, {name: b"x" for name in names})
    with pytest.raises(WeightsError, match=message) as error:
        resolve(archive)
    assert str(archive) in str(error.value)
    assert files_in(tmp_path) == [archive]


def test_interrupted_unpacking_is_repeated(tmp_path, cache, monkeypatch):
    archive = pack(tmp_path / "m.zip", MODEL)
    copied = []

    def interrupted(source, out, size):
        if copied:
            raise KeyboardInterrupt
        copied.append(out.write(source.read()))

    with monkeypatch.context() as patched:
        patched.setattr("shutil.copyfileobj", interrupted)
        with pytest.raises(KeyboardInterrupt):
            resolve(archive)
    assert copied and not files_in(cache)
    assert same(resolve(archive), (OPTIONS, WEIGHTS))


@pytest.mark.parametrize("name", MODEL)
def test_archive_of_a_damaged_model_leaves_nothing_in_the_cache(tmp_path, cache, name):
    archive = pack(tmp_path / "m.zip", MODEL | {name: b"x" * 100})
    with pytest.raises(BilmError, match=rf"m\.zip: {name}: (not a whole|invalid)"):
        resolve(archive)
    assert not files_in(cache)


def test_link_in_an_archive_is_not_followed(tmp_path):
    archive = pack(tmp_path / "m.tar", MODEL | {"weights.hdf5": "/etc/passwd"})
    with pytest.raises(WeightsError, match=r"found none, expected one \.hdf5"):
        resolve(archive)


def test_archive_over_the_size_limit_is_refused(tmp_path, cache, monkeypatch):
    archive = pack(tmp_path / "m.zip", MODEL)
    monkeypatch.setattr(archives, "MAX_BYTES", WEIGHTS.stat().st_size)  # of the weights alone
    with pytest.raises(WeightsError, match=r"m\.zip: .*: the model has .* bytes, expected at most"):
        resolve(archive)
    assert not files_in(cache)


@pytest.mark.parametrize("kind", ["m.zip", "m.tar.gz"])
def test_truncated_archive_is_an_error(tmp_path, cache, kind):
    whole = pack(tmp_path / kind, MODEL).read_bytes()
    for n in range(0, len(whole) - 20, 4999):
        (tmp_path / f"{n}_{kind}").write_bytes(whole[:n])
        with pytest.raises(WeightsError):
            resolve(tmp_path / f"{n}_{kind}")
    assert not list(cache.rglob("weights.hdf5"))


def test_flipped_bits_of_a_tar_gz_are_an_error(tmp_path, cache):
    """The checksum of a tar.gz is behind the blocks that end the tar archive."""
    stored = gzip.compress(pack(tmp_path / "m.tar", MODEL).read_bytes(), compresslevel=0)
    archive = tmp_path / "m.tar.gz"
    for position in range(5000, WEIGHTS.stat().st_size, 29_973):
        damaged = bytearray(stored)
        damaged[position] ^= 1
        archive.write_bytes(damaged)
        with pytest.raises(WeightsError, match=r"m\.tar\.gz: cannot be unpacked: CRC check failed"):
            resolve(archive)
        assert not files_in(cache)


def test_nested_archive_is_not_opened(tmp_path):
    inner = pack(tmp_path / "inner.zip", MODEL)
    with pytest.raises(WeightsError, match="found none"):
        resolve(pack(tmp_path / "m.zip", {"inner.zip": inner.read_bytes()}))
    (tmp_path / "m.gz").write_bytes(gzip.compress(b"x" * 100))
    with pytest.raises(WeightsError, match=r"neither a folder nor a ZIP.* --weights weights\.hdf5"):
        resolve(tmp_path / "m.gz")
    (tmp_path / "w.hdf5").write_bytes(b"x")
    with pytest.raises(WeightsError, match=r"--model options\.json --weights .*/w\.hdf5"):
        resolve(tmp_path / "w.hdf5")
