"""Models are found by two files, a folder or a ZIP archive."""

import shutil

import pytest
from stored_files import OPTIONS, WEIGHTS, load_bilm, resolve, same

from bilm import BidirectionalLanguageModel, Elmo, ElmoEmbedder
from bilm.errors import OptionsError, WeightsError

pytestmark = pytest.mark.usefixtures("cache")


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
    expected = "found an HDF5 file, expected options.json, before the weights"
    with pytest.raises(OptionsError, match=f"{WEIGHTS.name}: {expected}"):
        BidirectionalLanguageModel(WEIGHTS, OPTIONS)
    with pytest.raises(WeightsError, match=f"{OPTIONS.name}: not a whole HDF5 file"):
        BidirectionalLanguageModel(OPTIONS, OPTIONS)


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
        (("options.json", "elmo.hdf5"), ["a/options.json", "a/weights.hdf5", "b/elmo.hdf5"]),
        (("my-options.json", "elmo.hdf5"), []),
        (("hi/elmo/hi-d512-options.json", "hi/elmo/hi-d512-elmo.hdf5"), ["hi/elmo/vocab.txt"]),
        (("a/options.json", "a/weights.hdf5"), ["a/corpus.hdf5", "b/elmo.hdf5"]),
        (None, [f"{SMALL}_options.json", "one_weights.hdf5", "two_weights.hdf5"]),
        (None, ["one_options.json", "two_options.json", "elmo.hdf5"]),
        (None, ["one_a/options.json", "one_a/x.hdf5", "two_b/options.json", "two_b/x.hdf5"]),
    ],
)
def test_the_same_files_are_chosen_in_folders_and_archives(tmp_path, packed, expected, others):
    model = folder = tmp_path / "model"
    for i, name in enumerate([*(expected or ()), *others]):
        content = OPTIONS if name.endswith(".json") else WEIGHTS
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_bytes(content.read_bytes() + b" " * i)
    if packed:
        model = shutil.make_archive(str(model), "zip", model)
    if expected is None:
        with pytest.raises(WeightsError, match=r"found one_.*, two_.*, expected one"):
            resolve(model)
    else:
        assert same(resolve(model), [folder / name for name in expected])


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


def test_locate_weights_that_share_options_are_listed_and_chosen(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(OPTIONS, folder / "options262.json")
    for language in ("fi", "sl"):
        shutil.copy(WEIGHTS, folder / f"{language}_weights.hdf5")
    listed = r"found fi_weights\.hdf5, sl_weights\.hdf5, .* name the file weights.* with --weights"
    with pytest.raises(WeightsError, match=listed):
        resolve(folder)
    expected = folder / "options262.json", folder / "sl_weights.hdf5"
    assert resolve(folder, "sl_weights.hdf5") == expected
