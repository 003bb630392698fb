"""AllenNLP models: the ELMo in `weights.th` against AllenNLP's own numbers, and its files."""

import json
import shutil

import h5py
import keras
import numpy as np
import pytest
from allennlp_files import CONFIGURATION, MODULE, OPTIONS, mixes, tensors, write_model
from conftest import GOLDEN, golden_cases
from golden_models import LIMIT, check_conversion, check_layers, model_in, sentences_of
from manylangs_files import legacy, zipped

from bilm import Elmo, ElmoEmbedder
from bilm.commands.info import describe, find_problems
from bilm.errors import BilmError, OptionsError, WeightsError
from bilm.export.hdf5 import dump_weights
from bilm.storage.formats.allennlp import AllenNlp
from bilm.storage.stored_model import open_model

pytestmark = pytest.mark.usefixtures("cache")
CASES = golden_cases("allennlp") if (GOLDEN / "allennlp").is_dir() else []
SENTENCES = [["The", "cat"], []]


@pytest.fixture(params=CASES)
def case(request):
    return request.param


def given(case, with_options):
    """The arguments of `open_model`."""
    return (case / "options.json", model_in(case)) if with_options else (model_in(case),)


@pytest.mark.parametrize("with_options", [False, True], ids=["found", "given"])
def test_golden_allennlp_layers(case, with_options):
    backend = "keras" if with_options else "numpy"  # one of them is enough for the other way
    embedder = ElmoEmbedder(*given(case, with_options), backend=backend)
    if embedder.options.lstm != open_model(*given(case, True)).options.lstm:
        pytest.skip("the archive does not contain the options, and they differ from the published")
    check_layers(embedder.embed_batch(sentences_of(case)), case)


def test_golden_allennlp_options(case):
    model = open_model(*given(case, with_options=True))
    expected = json.loads((case / "options.json").read_text())
    assert model.options.lstm.cell_clip == expected["lstm"]["cell_clip"]
    assert model.options.char_cnn.activation == expected["char_cnn"]["activation"]
    found = open_model(model_in(case)).options
    with h5py.File(case / "expected.hdf5") as file:
        is_missing = file.attrs["options_are"] == "not in the archive"
    if not is_missing:
        assert found.lstm == model.options.lstm and found.char_cnn == model.options.char_cnn
    assert found.char_cnn.filters == model.options.char_cnn.filters
    assert found.lstm.dim == expected["lstm"]["dim"]
    assert found.char_cnn.n_highway == expected["char_cnn"]["n_highway"]


def test_golden_allennlp_conversion(case):
    check_conversion(open_model(*given(case, with_options=True)), case, 1e-6)


def test_golden_allennlp_export(case, tmp_path, log):
    """Export to HDF5: the tensors and options of the model; the mix is lost, with a warning."""
    model = open_model(*given(case, with_options=True))
    dump_weights(model, tmp_path / "out")
    exported = open_model(tmp_path / "out")
    assert exported.options.for_export().items() >= model.options.for_export().items()
    assert set(exported.tensors) == set(model.tensors)
    for name, expected in model.tensors.items():
        np.testing.assert_array_equal(exported.tensors[name], expected)
    assert ("the learned mix of the layers is not exported" in log.text) == bool(model.mixes)


def test_golden_allennlp_mix(case):
    elmo = Elmo(*given(case, with_options=True), combine="stored")
    model = open_model(model_in(case))
    is_normalized = any(mix.do_layer_norm for mix in model.mixes)  # over the batch
    sentences = sentences_of(case)
    groups = [[words] for words in sentences] if is_normalized else [sentences]
    mixes = []
    for group in groups:
        outputs = elmo(elmo.batcher().batch_sentences(group).astype("int32"))
        outputs = outputs if isinstance(outputs, list) else [outputs]
        found = np.stack([keras.ops.convert_to_numpy(output) for output in outputs], axis=1)
        mixes += [row[:, : len(words)] for row, words in zip(found, group, strict=True)]
    with h5py.File(case / "expected.hdf5") as file:
        for name in ("weights", "gamma"):
            expected = file["scalar_parameters" if name == "weights" else name]
            found = np.array([getattr(mix, name) for mix in model.mixes])
            np.testing.assert_allclose(found, expected, atol=1e-7, rtol=0)
        for k, found in enumerate(mixes):
            np.testing.assert_allclose(found, file[f"mix_{k}"], atol=LIMIT, rtol=0)


def write(folder, content, packed=True):
    folder.mkdir(exist_ok=True)
    (folder / "weights.th").write_bytes(zipped(content) if packed else legacy(content))
    return folder


def vectors(*model):
    return ElmoEmbedder(*model, backend="numpy").embed_batch(SENTENCES)


@pytest.mark.parametrize("packed", [False, True])
def test_lone_weights_have_derived_options_and_a_warning(tmp_path, log, packed):
    folder = write_model(tmp_path / "model", packed, config=False)
    for source in (folder, folder / "weights.th"):
        log.clear()
        model = open_model(source)
        assert type(model) is AllenNlp
        found = model.options.for_export()
        assert {key: found[key] for key in OPTIONS} == OPTIONS and found["bidirectional"]
        (warning,) = [r.getMessage() for r in log.records if r.levelname == "WARNING"]
        assert "found no options" in warning and "clips of 3" in warning


@pytest.mark.parametrize(
    "module", ["", "_elmo", "a.b.elmo", "_text_field_embedder.token_embedder_x._elmo"]
)
def test_elmo_is_found_in_any_module(tmp_path, module):
    alone = write(tmp_path / "alone", tensors(""))
    others = {"_elmo_lstm.weight": np.ones((2, 2), "f4"), "steps": np.ones(3, "f4")}
    nested = write(tmp_path / "nested", others | tensors(module))
    for ours, theirs in zip(vectors(nested), vectors(alone), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_file_with_several_elmos_is_refused(tmp_path):
    folder = write(tmp_path / "model", tensors("en.elmo") | tensors("de.elmo"))
    with pytest.raises(WeightsError, match=r"found 'en\..*, 'de\..*, expected one ELMo"):
        open_model(folder).options  # noqa: B018


def test_bare_bilm_is_found(tmp_path):
    """The state of AllenNLP's `_ElmoBiLm`, in a module of another name."""
    alone = {name: value for name, value in tensors("").items() if "mix" not in name}
    content = {name.replace("_elmo_lstm.", "elmo_bilm.", 1): alone[name] for name in alone}
    model = open_model(write(tmp_path / "model", content))
    assert model.mixes == []
    expected = vectors(write(tmp_path / "alone", tensors("")))
    np.testing.assert_array_equal(vectors(model)[0], expected[0])
    with pytest.raises(WeightsError, match="contains no learned mix"):
        Elmo(model, combine="stored")


OTHER = OPTIONS | {"lstm": OPTIONS["lstm"] | {"cell_clip": 0, "proj_clip": 0.25}}
ARCHIVED = "fta/model.text_field_embedder.token_embedders.elmo"
PLACES = f"{ARCHIVED}.options_file", "options.json", "weights_options.json"


@pytest.mark.parametrize("place", PLACES)
def test_options_are_found_in_the_folder_and_in_archives(tmp_path, place):
    folder = write_model(tmp_path / "model")
    (folder / "fta").mkdir()
    (folder / place).write_text(json.dumps(OTHER))
    (folder / f"{ARCHIVED}.weight_file").write_bytes(b"x")
    archive = shutil.make_archive(str(tmp_path / "m"), "gztar", tmp_path, "model")
    for source in (folder, archive):
        model = open_model(source)
        assert model.options.lstm.cell_clip is None and model.options.lstm.proj_clip == 0.25
        names = {p.relative_to(model.folder).as_posix() for p in model.files()}
        assert names == {"weights.th", "config.json", place}
    assert not list(tmp_path.rglob("cache/**/*weight_file"))


def test_options_beside_an_archive_are_read_if_it_has_none(tmp_path):
    archive = shutil.make_archive(str(tmp_path / "m"), "gztar", write_model(tmp_path / "model"))
    assert open_model(archive).options.lstm.cell_clip == 3
    (tmp_path / "options.json").write_text(json.dumps(OTHER))
    model = open_model(archive)
    assert model.options.lstm.cell_clip is None
    assert tmp_path / "options.json" in model.files()
    (tmp_path / "model" / "options.json").write_text(json.dumps(OPTIONS))
    archive = shutil.make_archive(str(tmp_path / "m2"), "gztar", tmp_path / "model")
    assert open_model(archive).options.lstm.cell_clip == 3


def test_options_outside_the_folder_are_not_read(tmp_path):
    folder, outside = write_model(tmp_path / "model"), tmp_path / "options.json"
    outside.write_text(json.dumps(OTHER))
    for path in (str(outside), "../options.json"):
        arguments = {"options_file": path}
        (folder / "config.json").write_text(json.dumps({"model": {"elmo": arguments}}))
        assert open_model(folder).options.lstm.cell_clip == 3


def test_folder_of_a_stopped_training(tmp_path):
    """It contains the best weights, those of each epoch, the configuration and vocabularies."""
    folder = write_model(tmp_path / "model")
    expected = vectors(folder)
    (folder / "weights.th").rename(folder / "best.th")
    (folder / "model_state_epoch_0.th").write_bytes(b"x")
    (folder / "vocabulary").mkdir()
    (folder / "vocabulary" / "tokens.txt").write_text("a")
    archive = shutil.make_archive(str(tmp_path / "m"), "gztar", tmp_path, "model")
    for source in (folder, folder / "best.th", archive):
        np.testing.assert_array_equal(vectors(source)[0], expected[0])


def test_given_options_take_precedence(tmp_path):
    folder, options = write_model(tmp_path / "model"), tmp_path / "given.json"
    options.write_text(json.dumps(OTHER))
    archive = shutil.make_archive(str(tmp_path / "m"), "gztar", folder)
    for weights in (folder, folder / "weights.th", archive):
        model = open_model(options, weights)
        assert type(model) is AllenNlp and model.options.lstm.proj_clip == 0.25
        assert model.digest != open_model(weights).digest


def test_hdf5_weights_beside_weights_th_without_a_configuration(stored_model, tmp_path):
    write_model(tmp_path / "other", config=False)
    shutil.copy(tmp_path / "other" / "weights.th", stored_model)
    assert open_model(stored_model).format == "bilm-tf"
    (stored_model / "config.json").write_text(json.dumps(CONFIGURATION))
    assert type(open_model(stored_model)) is AllenNlp


@pytest.mark.parametrize("packed", [False, True])
def test_tensors_of_other_types_are_allowed_outside_the_elmo(tmp_path, packed):
    torch = pytest.importorskip("torch")
    content = {name: torch.tensor(value) for name, value in tensors().items()}
    kinds = torch.int64, torch.int32, torch.uint8, torch.bool, torch.bfloat16
    others = {f"x{i}": torch.ones(3, dtype=kind) for i, kind in enumerate(kinds)}
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "weights.th"
    torch.save(content | others, path, _use_new_zipfile_serialization=packed)
    expected = vectors(write_model(tmp_path / "expected"))
    for ours, theirs in zip(vectors(path), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    name = next(name for name in content if name.endswith("_projection.bias"))
    torch.save(content | {name: content[name].to(torch.bfloat16)}, path)
    with pytest.raises(WeightsError, match=r"_projection\.bias has a type other than float16"):
        open_model(path).build()


def test_file_without_an_elmo_is_refused(tmp_path):
    folder = write(tmp_path / "model", {"encoder.weight": np.ones((2, 2), "f4")})
    with pytest.raises(WeightsError, match=r"weights\.th: found none, expected one ELMo"):
        open_model(folder).build()
    (folder / "weights.th").write_bytes(b"x")
    with pytest.raises(WeightsError, match="not a whole state dict of PyTorch"):
        open_model(folder).build()


def test_widths_that_bilm_cannot_project_are_refused(tmp_path, monkeypatch):
    import allennlp_files

    monkeypatch.setattr(allennlp_files, "WIDTH", allennlp_files.DIM)
    with pytest.raises(OptionsError, match="the LSTM's dim and projection_dim are both 6"):
        open_model(write(tmp_path / "model", tensors())).build()


def test_layer_keeps_the_stored_mix(tmp_path):
    content = tensors() | {f"{MODULE}.{name}": value for name, value in mixes(2).items()}
    model = open_model(write(tmp_path / "model", content))
    described = describe(model)["mixes"]
    assert described == [
        {"weights": [0.0, 1.0], "gamma": 1.5, "do_layer_norm": False},
        {"weights": [0.5, 1.5], "gamma": 2.5, "do_layer_norm": False},
    ]
    elmo = Elmo(model, combine="stored")
    ids = elmo.batcher().batch_sentences(SENTENCES).astype("int32")
    layers = ElmoEmbedder(model).embed_sentence(SENTENCES[0])
    share = np.exp([0.0, 1.0]) / np.exp([0.0, 1.0]).sum()
    outputs = [keras.ops.convert_to_numpy(output)[0] for output in elmo(ids)]
    for output, gamma in zip(outputs, (1.5, 2.5), strict=True):
        expected = gamma * np.einsum("j,jtd->td", share, layers)
        np.testing.assert_allclose(output, expected, atol=1e-6, rtol=0)
    again = Elmo.from_config(elmo.get_config())
    for ours, theirs in zip(again(ids), outputs, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(ours)[0], theirs)
    inputs = keras.Input((None, 50), dtype="int32")
    keras.Model(inputs, elmo(inputs)[0]).save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(loaded(ids)[0], outputs[0], atol=1e-6, rtol=0)


def test_damaged_mix_is_a_problem(tmp_path):
    content = tensors()
    name = next(name for name in content if name.endswith("scalar_parameters.1"))
    content[name] = np.array([np.nan], "f4")
    model = open_model(write(tmp_path / "model", content))
    assert any("scalar_parameters.1 is not a finite number" in p for p in find_problems(model))
    assert describe(model)["mixes"] == []
    with pytest.raises(BilmError, match="not a finite number"):
        Elmo(model, combine="stored")
