"""What holds for the models of every format: found, read, described, identified, and embedded."""

import json
import pickle
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from conftest import GOLDEN
from stored_files import stored_values
from tiny_runs import tiny_run

from bilm import ElmoEmbedder
from bilm.commands.info import describe
from bilm.errors import BilmError, OptionsError, WeightsError
from bilm.export.hdf5 import dump_weights
from bilm.storage.checkpoint import ROWS, latest_checkpoint
from bilm.storage.formats.allennlp import AllenNlp
from bilm.storage.formats.bilm_tf import BilmTf
from bilm.storage.formats.manylangs import ManyLangs
from bilm.storage.formats.rows import variables_of
from bilm.storage.formats.run import Run
from bilm.storage.stored_model import StoredModel, open_model

pytestmark = pytest.mark.usefixtures("cache")
CHECKPOINT = GOLDEN / "checkpoint" / "chars"
MANYLANGS = GOLDEN / "manylangs" / "word_and_char_legacy"
SENTENCES = [["the", "cat", "sat"], [], ["日本語"]]


class Case(NamedTuple):
    """A model: its files, the options first, its weights, and what is expected of it."""

    format: type[StoredModel]
    source: Path
    names: tuple[str, ...]
    weights: str
    n_words: int | None
    program: str


CASES = {
    "hdf5": Case(BilmTf, CHECKPOINT, ("options.json", "weights.hdf5"), "weights.hdf5", None, ""),
    "tf1 run": Case(
        Run, CHECKPOINT,
        ("options.json", "model.ckpt-630.index", "model.ckpt-630.data-00000-of-00001"),
        "model.ckpt-630.index", 49, "run of the TensorFlow 1 reference, model.ckpt-630",
    ),
    "run": Case(
        Run, Path(),
        ("options.json", "vocab.txt", "model.ckpt-2.index", "model.ckpt-2.data-00000-of-00001",
         "model.ckpt-2.json"),
        "model.ckpt-2.index", 49, "run of bilm, model.ckpt-2",
    ),
    "manylangs": Case(
        ManyLangs, MANYLANGS,
        ("config.json", *(p.name for p in MANYLANGS.iterdir() if p.suffix in (".pkl", ".dic")),
         *(p.name for p in MANYLANGS.glob("*.json") if p.name != "config.json")),
        "encoder.pkl", None, "",
    ),
    "allennlp": Case(
        AllenNlp, GOLDEN / "allennlp" / "bare_weights" / "model", ("options.json", "weights.th"),
        "weights.th", None, "",
    ),
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request):
    found = CASES[request.param]
    return found._replace(source=tiny_run("characters")) if request.param == "run" else found


@pytest.fixture
def folder(case, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in case.names:
        shutil.copy(case.source / name, folder)
    return folder


def embedded(model):
    return ElmoEmbedder(model, backend="numpy").embed_batch(SENTENCES)


@pytest.mark.parametrize("inside", ["", "inside"])
@pytest.mark.parametrize("packed", [None, "zip", "gztar"])
def test_model_is_found_in_folders_and_archives(case, folder, tmp_path, inside, packed):
    top = folder
    if inside:
        top = tmp_path / "top"
        shutil.move(folder, top / inside)
    if packed:
        top = shutil.make_archive(str(tmp_path / "m"), packed, top)
    model = open_model(top)
    assert type(model) is case.format
    assert {path.name for path in model.files()} <= set(case.names)
    expected = open_model(case.source / case.names[0], case.source / case.weights)
    if case.format is not ManyLangs:
        assert model.options.lstm == expected.options.lstm
    for ours, theirs in zip(embedded(model), embedded(expected), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_model_is_found_by_options_and_weights(case, folder):
    options = "config.json" if case.format is ManyLangs else "options.json"
    by_files = open_model(folder / options, folder / case.weights)
    in_folder = open_model(folder, case.weights)
    for model in (by_files, in_folder):
        assert type(model) is case.format and model.options == open_model(folder).options


def test_missing_tensor_is_reported_by_name(case, folder):
    model = open_model(folder)
    missing = next(name for name in model.tensors if name.endswith("W_proj"))
    del model.tensors[missing]
    with pytest.raises(WeightsError, match=rf"{missing} is missing"):
        model.build()


def test_digest_is_stable_and_follows_content(case, folder, tmp_path):
    before = open_model(folder).digest
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    assert open_model(copy).digest == before
    model = open_model(copy)
    for path in model.fingerprint_files():
        content = path.read_bytes()
        path.write_bytes(content.replace(b"{", b"{ ", 1) if path.suffix == ".json" else content)
    assert open_model(copy).digest != before


def test_describe_returns_the_facts_of_each_format(case, folder):
    model = open_model(folder)
    found = describe(model)
    assert json.loads(json.dumps(found)) == found
    assert found["format"] == (case.program or case.format.format)
    assert found["vocabulary"] == case.n_words
    assert found["lstm_dim"] == model.options.lstm.dim
    assert found["parameters"] == sum(v.size for v in stored_values(model.build()).values())
    assert {Path(file["path"]).name for file in found["files"]} <= set(case.names)
    assert found["expects"].startswith("words tokenized like")
    assert set(found["stored_as"]) <= {"float16", "float32", "float64"}


def test_stored_model_softmax_matches_its_vocabulary(case, folder):
    model = open_model(folder)
    assert model.n_words == case.n_words
    if case.n_words is None:
        with pytest.raises((OptionsError, WeightsError), match=r"cannot score"):
            model.require_softmax("score sentences")
        return
    softmax = model.require_softmax("score sentences")
    assert softmax.n_words == case.n_words == len(np.asarray(softmax.tensors["softmax/b"]))
    words = model.vocabulary(GOLDEN / "data" / "vocab.txt")
    assert words.size == case.n_words
    assert model.weights(has_softmax=True).build().n_tokens == case.n_words


def test_pickled_model_opens_the_same_files(case, folder):
    model = open_model(folder)
    copy = pickle.loads(pickle.dumps(model))
    assert isinstance(copy, StoredModel) and str(copy) == str(model)
    assert copy.digest == model.digest and copy.own_files == model.own_files


def test_pickled_model_keeps_the_softmax(tmp_path):
    dump_weights(tiny_run("characters"), tmp_path / "weights.hdf5", include_softmax=True)
    softmax = (tmp_path / "weights_softmax.hdf5").rename(tmp_path / "other.hdf5")
    model = open_model(tmp_path, softmax=softmax)
    assert pickle.loads(pickle.dumps(model)).n_words == model.n_words == 49


@pytest.mark.parametrize("position", [0, 1])
def test_incomplete_model_is_an_error_with_its_path(case, folder, position):
    names = "config.json" if case.format is ManyLangs else "options.json", case.weights
    if case.format is AllenNlp and position == 0:
        pytest.skip("its options are derived from the shapes of tensors if no file contains them")
    (folder / names[position]).unlink()
    if position == 1:
        for path in folder.glob("model.ckpt-*"):
            path.unlink()
    with pytest.raises(BilmError, match=str(folder)):
        open_model(folder).options  # noqa: B018


def test_damaged_weights_are_an_error(case, folder):
    name = case.weights.replace(".index", ".data-00000-of-00001")
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(WeightsError, match=str(folder)):
        open_model(folder).build()


@pytest.mark.parametrize("variant", ["characters", "words", "forward_only", "one_layer"])
def test_names_of_weights_in_checkpoints(variant):
    specs = open_model(tiny_run(variant)).weights(has_softmax=True).build().specs()
    assert set(specs) == latest_checkpoint(tiny_run(variant)).tensors.keys()
    others = "global_step", "lm/char_embed/Adagrad", "char_embed", "lm/rnn/lstm_cell/gate"
    assert variables_of(dict.fromkeys(others), ROWS, "checkpoint") == {}
