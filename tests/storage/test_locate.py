"""Models are found by two files, a folder or a ZIP archive."""

import os
import shutil
import zipfile

import numpy as np
import pytest
from stored_files import OPTIONS, WEIGHTS, files_in, load_bilm, make_zip, resolve, same

from bilm import BidirectionalLanguageModel, Elmo, ElmoEmbedder
from bilm.errors import OptionsError, WeightsError
from bilm.storage.finding import archive as archives

pytestmark = pytest.mark.usefixtures("cache")


def test_options_and_weights_are_two_files():
    assert resolve(OPTIONS, WEIGHTS) == (OPTIONS, WEIGHTS)
    assert resolve(str(OPTIONS), str(WEIGHTS)) == (OPTIONS, WEIGHTS)
    with pytest.raises(WeightsError, match="also pass the weight file"):
        resolve(OPTIONS)


def test_empty_name_is_an_error(tmp_path, monkeypatch):
    shutil.copy(OPTIONS, tmp_path / "options.json")
    shutil.copy(WEIGHTS, tmp_path / "weights.hdf5")
    monkeypatch.chdir(tmp_path)
    resolve(".")
    for arguments in [("",), ("", "weights.hdf5"), ("options.json", "")]:
        for take in (resolve, ElmoEmbedder, Elmo, load_bilm):
            with pytest.raises(WeightsError, match="found an empty string; expected the path"):
                take(*arguments)


def test_swapped_options_and_weights_are_an_error():
    expected = "found an HDF5 file, expected options.json; options come first, weights second"
    with pytest.raises(OptionsError, match=f"{WEIGHTS.name}: {expected}"):
        BidirectionalLanguageModel(WEIGHTS, OPTIONS)
    expected = "found JSON, expected an HDF5 file of weights; options come first, weights second"
    with pytest.raises(WeightsError, match=f"{OPTIONS.name}: {expected}"):
        BidirectionalLanguageModel(OPTIONS, OPTIONS)


@pytest.mark.parametrize("inside", ["", "147"])
def test_folder_needs_options_and_one_weight_file(tmp_path, inside):
    folder = tmp_path / "model" / inside
    folder.mkdir(parents=True)
    with pytest.raises(WeightsError, match=r"found none, expected one options\.json"):
        resolve(tmp_path / "model")
    shutil.copy(OPTIONS, folder)
    with pytest.raises(WeightsError, match=r"found none, expected one \.hdf5"):
        resolve(tmp_path / "model")
    shutil.copy(WEIGHTS, folder / "elmo.hdf5")
    shutil.copy(WEIGHTS, folder / "elmo_softmax.hdf5")  # no candidate
    assert resolve(tmp_path / "model") == (folder / "options.json", folder / "elmo.hdf5")
    shutil.copy(WEIGHTS, folder / "other.hdf5")
    with pytest.raises(
        WeightsError, match=r"elmo\.hdf5, .*other\.hdf5.* name the file weights\.hdf5"
    ):
        resolve(tmp_path / "model")


SMALL = "elmo_2x1024_128_2048cnn_1xhighway"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("expected", "others"),
    [
        (("options.json", "model.hdf5"), ["weights.hdf5", "corpus.hdf5"]),
        (("options.json", "weights.hdf5"), ["corpus.hdf5", "weights_softmax.hdf5"]),
        (("options.json", "weights.h5"), ["corpus.h5", "old_weights.hdf5"]),
        ((f"{SMALL}_options.json", f"{SMALL}_weights.hdf5"), []),
        ((f"{SMALL}_options.json", f"{SMALL}_weights.hdf5"), ["options.json", "corpus.hdf5"]),
        (("elmo_options.json", "elmo.hdf5"), ["options.json", "elmo_softmax.hdf5"]),
        (("options.json", "elmo.hdf5"), ["train_options.json"]),
        (("my-options.json", "elmo.hdf5"), []),
        (("a/options.json", "a/weights.hdf5"), ["a/corpus.hdf5", "b/elmo.hdf5"]),
        (None, [f"{SMALL}_options.json", "one_weights.hdf5", "two_weights.hdf5"]),
        (None, ["one_options.json", "two_options.json", "elmo.hdf5"]),
    ],
)
def test_the_same_files_are_chosen_in_folders_and_archives(tmp_path, packed, expected, others):
    model = tmp_path / "model"
    for i, name in enumerate([*(expected or ()), *others]):
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_bytes(b"%d" % i)
    if packed:
        shutil.make_archive(str(model), "zip", model)
        model = tmp_path / "model.zip"
    if expected is None:
        with pytest.raises(WeightsError, match=r"found one_.*, two_.*, expected one"):
            resolve(model)
    else:
        assert [path.read_bytes() for path in resolve(model)] == [b"0", b"1"]


def test_large_options_in_an_archive_are_refused(tmp_path, cache):
    """Stored without compression, so that the ratio of sizes does not apply."""
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as file:
        file.writestr("options.json", b" " * (2 << 20))
        file.write(WEIGHTS, "weights.hdf5")
    with pytest.raises(WeightsError, match=r"options\.json unpacks to 2,097,152 bytes"):
        resolve(tmp_path / "m.zip")
    assert not files_in(cache)


def test_top_of_a_folder_precedes_folders_below(tmp_path, monkeypatch):
    """Two folders below are ambiguous."""
    folder = tmp_path / "small"
    for inside in (folder / "a", folder / "b"):
        inside.mkdir(parents=True)
        shutil.copy(OPTIONS, inside)
        shutil.copy(WEIGHTS, inside)
    with pytest.raises(WeightsError, match=r"a/options\.json, b/options\.json"):
        resolve(folder)
    for path in (OPTIONS, WEIGHTS):
        shutil.copy(path, folder)
    monkeypatch.chdir(tmp_path)
    assert same(resolve("small"), (OPTIONS, WEIGHTS))  # a path precedes a name
    assert resolve("small")[0].parent.name == "small"


@pytest.mark.parametrize("folder", ["", "147/"])
def test_archive_gives_the_same_vectors(tmp_path, cache, folder):
    names = [f"{folder}options.json", f"{folder}model.hdf5", f"{folder}README"]
    archive = make_zip(tmp_path / "147.zip", names)
    found = resolve(archive)
    assert same(found, (OPTIONS, WEIGHTS))
    assert all(cache in path.parents for path in found)
    model = BidirectionalLanguageModel(archive)
    ids = np.ones((1, 3, model.options.char_cnn.max_characters_per_token))
    expected = BidirectionalLanguageModel(OPTIONS, WEIGHTS)(ids)["lm_embeddings"]
    np.testing.assert_array_equal(model(ids)["lm_embeddings"], expected)


def test_archive_is_unpacked_once(tmp_path, cache):
    archive = make_zip(tmp_path / "m.zip", ["options.json", "model.hdf5", "vocab.txt"])
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("__MACOSX/._model.hdf5", "")
        file.writestr("._model.hdf5", "")
        file.writestr("model_softmax.hdf5", "")
        file.writestr("corpus.hdf5", "")
    found = resolve(archive)
    beside = [found[1].with_name(name) for name in ("vocab.txt", "weights_softmax.hdf5")]
    assert sorted(files_in(cache)) == sorted([*found, *beside])
    times = [p.stat().st_mtime_ns for p in found]
    assert resolve(archive) == found
    assert [p.stat().st_mtime_ns for p in found] == times
    make_zip(archive, ["options.json", "model.hdf5"])  # another archive of that name
    assert resolve(archive) != found


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["options.json"], r"found none, expected one \.hdf5"),
        (["model.hdf5"], r"found none, expected one options\.json"),
        (["options.json", "a.hdf5", "b.hdf5"], r"found a\.hdf5, b\.hdf5"),
        (["a/options.json", "b/model.hdf5"], r"found none, expected one \.hdf5"),
        (["a/b/options.json", "a/b/model.hdf5"], r"found none, expected one options\.json"),
        (["../options.json", "../model.hdf5"], r"\.\./options\.json is a path out of"),
        (["options.json", "model.hdf5", "a/../../README"], r"a/\.\./\.\./README is a path out of"),
        (["options.json", "/tmp/model.hdf5"], r"/tmp/model\.hdf5 is a path out of"),
        (["options.json", "..\\model.hdf5"], r"model\.hdf5 is a path out of"),
        (["options.json", "C:\\model.hdf5"], r"model\.hdf5 is a path out of"),
    ],
)
def test_hostile_or_incomplete_archive_is_refused(tmp_path, cache, names, message):
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as file:
        for name in names:
            info = zipfile.ZipInfo("x")
            info.filename = name  # as it is; the constructor would tidy it
            file.writestr(info, b"")
    with pytest.raises(WeightsError, match=message) as error:
        resolve(tmp_path / "m.zip")
    assert str(tmp_path / "m.zip") in str(error.value)
    assert files_in(tmp_path) == [tmp_path / "m.zip"]


def test_archive_with_names_that_differ_in_case_is_refused(tmp_path, cache):
    for names in (["model.hdf5", "Model.hdf5"], ["m/model.hdf5", "M/model.hdf5"]):
        options = sorted({name.rpartition("/")[0] + "/options.json" for name in names})
        archive = make_zip(tmp_path / "m.zip", [o.lstrip("/") for o in options] + names)
        with pytest.raises(WeightsError, match=r"[Mm]/?.*, [Mm].*expected one"):
            resolve(archive)
    assert not files_in(cache)


def test_archive_replaced_by_one_of_equal_size_and_time_is_unpacked_again(tmp_path):
    other = tmp_path / "other.hdf5"
    content = bytearray(WEIGHTS.read_bytes())
    content[-1] ^= 1
    other.write_bytes(content)
    archive, stored = tmp_path / "m.zip", zipfile.ZIP_STORED
    for weights in (WEIGHTS, other):
        with zipfile.ZipFile(archive, "w", stored) as file:
            for source, name in ((OPTIONS, "options.json"), (weights, "model.hdf5")):
                file.writestr(zipfile.ZipInfo(name), source.read_bytes())
        os.utime(archive, (1, 1))
        assert same(resolve(archive), (OPTIONS, weights))


@pytest.mark.parametrize("weights", ["elmo_weights.hdf5", "elmo.hdf5", "other.hdf5"])
def test_options_beside_weights_given_by_name(tmp_path, weights):
    shutil.copy(OPTIONS, tmp_path / "elmo_options.json")
    expected = tmp_path / "elmo_options.json"
    if weights == "other.hdf5":
        expected = tmp_path / "options.json"
        shutil.copy(OPTIONS, expected)
    shutil.copy(WEIGHTS, tmp_path / weights)
    for given in (weights, tmp_path / weights):
        assert resolve(tmp_path, given) == (expected, tmp_path / weights)


def test_encrypted_archive_is_refused(tmp_path, cache):
    archive = make_zip(tmp_path / "m.zip", ["options.json", "model.hdf5"])
    content = bytearray(archive.read_bytes())
    start = 0
    while (start := content.find(b"PK\x01\x02", start) + 1) > 0:
        content[start + 7] |= 1  # the first flag of an entry in the directory
    archive.write_bytes(content)
    with pytest.raises(WeightsError, match=r"options\.json is encrypted"):
        resolve(archive)
    assert not files_in(cache)


def test_archive_with_other_compression_is_refused(tmp_path, cache):
    with zipfile.ZipFile(tmp_path / "m.zip", "w", zipfile.ZIP_BZIP2) as file:
        file.write(OPTIONS, "options.json")
        file.write(WEIGHTS, "model.hdf5")
    with pytest.raises(WeightsError, match=r"options\.json is compressed by another method"):
        resolve(tmp_path / "m.zip")


def test_zip_bomb_is_refused(tmp_path, cache):
    zeros = tmp_path / "zeros"
    with open(zeros, "wb") as file:
        file.truncate(16 << 20)
    archive = make_zip(tmp_path / "bomb.zip", ["options.json", "model.hdf5"], zeros)
    with pytest.raises(WeightsError, match=r"model\.hdf5 unpacks to 16,777,216 bytes"):
        resolve(archive)
    assert not files_in(cache)


def test_archive_over_the_size_limit_is_refused(tmp_path, cache, monkeypatch):
    archive = make_zip(tmp_path / "m.zip", ["options.json", "model.hdf5"])
    room = WEIGHTS.stat().st_size
    monkeypatch.setattr(archives, "MAX_BYTES", room)  # enough for the weights alone
    with pytest.raises(WeightsError, match=rf"m\.zip: model\.hdf5 unpacks to {room:,} bytes"):
        resolve(archive)
    assert not files_in(cache)


def test_truncated_archive_is_an_error(tmp_path, cache):
    archive = make_zip(tmp_path / "m.zip", ["options.json", "model.hdf5"])
    whole = archive.read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightsError, match="neither a folder nor a ZIP"):
        resolve(tmp_path / "cut.zip")
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 255
    (tmp_path / "damaged.zip").write_bytes(damaged)
    with pytest.raises(WeightsError, match="cannot be unpacked"):
        resolve(tmp_path / "damaged.zip")
    assert not list(cache.rglob("weights.hdf5"))


def test_randomly_damaged_archive_is_an_error(tmp_path):
    """Every damage raises WeightsError."""
    archive = make_zip(tmp_path / "m.zip", ["options.json", "model.hdf5"], OPTIONS)
    whole = archive.read_bytes()
    random = np.random.default_rng(0)
    n_refused = 0
    for i in range(200):
        damaged = bytearray(whole)
        for position in random.integers(len(whole), size=3):
            damaged[position] = random.integers(256)
        (tmp_path / f"{i}.zip").write_bytes(damaged)
        try:
            resolve(tmp_path / f"{i}.zip")
        except WeightsError:
            n_refused += 1
    assert n_refused > 100


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(WeightsError, match=r"original_5\.5b"):
        resolve("smal")
