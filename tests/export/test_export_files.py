"""The files of an export: all or none, without overwriting other files."""

import json
import os
import shutil

import h5py
import numpy as np
import pytest
from stored_files import load_bilm
from tiny_runs import N_CHARACTERS, VOCABULARY, load_run, tiny_run

from bilm.data.model_ids import Batcher
from bilm.errors import WeightsError
from bilm.export.hdf5 import dump_weights
from bilm.scoring.scorer import load_scorer
from bilm.storage.stored_weights import StoredWeights

SENTENCE = ["money", "w3", "日本語", "unheard-of", "Москва"]
FILES = ["options.json", "weights.hdf5", "weights_softmax.hdf5"]  # in the order of their renaming
values = StoredWeights.values


def other_values(self):
    """The values of a model; for the export of a run, which has a softmax, other values."""
    for name, value in values(self):
        yield name, value + 0.1 if self.has_softmax else value


def stored_vectors(folder):
    return load_bilm(folder)(Batcher(None, N_CHARACTERS).batch_sentences([SENTENCE]))["layers"]


def answers(folder):
    """What an export says: log-probabilities, and vectors; None where it is refused."""

    def scores(folder):
        return next(load_scorer(folder).score([SENTENCE])).forward

    found = []
    for ask in (scores, stored_vectors):
        try:
            found.append(np.asarray(ask(folder)))
        except WeightsError as error:
            assert "of another export" in str(error) and "export the model again" in str(error)
            found.append(None)
    return found


def same(found, expected):
    return found is not None and np.array_equal(found, expected)


@pytest.fixture(scope="module")
def two_exports(tmp_path_factory):
    """Folders with whole exports of two models of one shape, and what they answer."""
    run, folder = tiny_run("characters"), tmp_path_factory.mktemp("exports")
    dump_weights(run, folder / "old", True, VOCABULARY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoredWeights, "values", other_values)
        dump_weights(run, folder / "new", True, VOCABULARY)
    old, new = answers(folder / "old"), answers(folder / "new")
    assert not any(same(a, b) for a, b in zip(old, new, strict=True))
    return folder / "old", old[0], new


@pytest.mark.parametrize("n_renamed", [1, 2])
def test_export_killed_between_two_files_is_detected(two_exports, tmp_path, monkeypatch, n_renamed):
    """Either export answers, or neither: never a mixture of the two."""
    whole, _, new = two_exports
    folder, replace = shutil.copytree(whole, tmp_path / "elmo"), os.replace
    renamed = []

    def replace_or_end(source, target, **arguments):
        if os.path.dirname(target) == str(folder) and os.path.basename(target) in FILES:
            if len(renamed) == n_renamed:
                raise KeyboardInterrupt
            renamed.append(os.path.basename(target))
        replace(source, target, **arguments)

    monkeypatch.setattr(StoredWeights, "values", other_values)
    monkeypatch.setattr(os, "replace", replace_or_end)
    with pytest.raises(KeyboardInterrupt):
        dump_weights(tiny_run("characters"), folder, True, VOCABULARY)
    monkeypatch.undo()
    assert renamed == FILES[:n_renamed]
    expected = {1: [None, None], 2: [None, new[1]]}[n_renamed]
    for found, answer in zip(answers(folder), expected, strict=True):
        assert (found is None and answer is None) or same(found, answer)
    assert sorted(path.name for path in folder.iterdir()) == FILES


def test_export_files_without_an_id_load_together(two_exports, tmp_path):
    """As other programs write them; a run's options, too, go with the weights of its export."""
    whole, expected, _ = two_exports
    folder = shutil.copytree(whole, tmp_path / "elmo")
    values = json.loads((folder / "options.json").read_text())
    with h5py.File(folder / "weights.hdf5") as file:
        assert file.attrs["bilm_export"] == values.pop("bilm_export")
    (folder / "options.json").write_text(json.dumps(values))
    assert same(answers(folder)[0], expected)
    for name in FILES[1:]:
        with h5py.File(folder / name, "r+") as file:
            del file.attrs["bilm_export"]
        if name == "weights.hdf5":  # a softmax with an id is of another export
            assert answers(folder)[0] is None
    assert same(answers(folder)[0], expected)


def test_export_is_reproducible_to_the_byte(two_exports, tmp_path):
    whole = two_exports[0]
    dump_weights(tiny_run("characters"), tmp_path / "again", True, VOCABULARY)
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (whole / name).read_bytes()


def test_export_into_a_run_folder_keeps_its_options(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(tiny_run("characters"), run)
    own = (run / "options.json").read_bytes()
    written = dump_weights(run, run / "elmo.hdf5")
    assert written == [run / "elmo.hdf5", run / "elmo_options.json"]
    assert (run / "options.json").read_bytes() == own
    assert load_bilm(written[1], written[0]).options.char_cnn.n_characters == 262
    assert load_run(run).padding is False


@pytest.mark.parametrize("name", ["model2", "model2/", "model.v2", "there"])
def test_export_to_a_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    weight_file, options_file = dump_weights(tiny_run("characters"), name)
    assert (str(weight_file), options_file.name) == (f"{name.rstrip('/')}/weights.hdf5", FILES[0])
    load_bilm(name)


@pytest.mark.parametrize("variant", ["characters", "words"])
def test_export_keeps_options_that_are_not_exported(variant, tmp_path):
    """A user's options of training; or a run's, without TensorFlow's list of its checkpoints."""
    run = tiny_run(variant)
    mine = tmp_path / "options.json"
    shutil.copy(run / "options.json", mine)
    written = dump_weights(run, tmp_path / "weights.hdf5")
    assert written[1] == tmp_path / "weights_options.json"
    assert mine.read_bytes() == (run / "options.json").read_bytes()
    assert load_bilm(tmp_path).options.other["bilm_export"]  # its own options are taken
    assert dump_weights(run, tmp_path / "weights.hdf5") == written
    shutil.copy(mine, written[1])
    with pytest.raises(WeightsError, match=r"weights_options\.json: .* pass another --output"):
        dump_weights(run, tmp_path / "weights.hdf5")


def test_export_of_a_second_model_keeps_the_options_of_the_first(tmp_path):
    first = dump_weights(tiny_run("characters"), tmp_path / "one.hdf5", True, VOCABULARY)
    kept = [path.read_bytes() for path in first]
    weight_file, options_file = dump_weights(tiny_run("words"), tmp_path / "two.hdf5")
    assert options_file.name == "two_options.json"
    assert [path.read_bytes() for path in first] == kept
    assert load_bilm(tmp_path, "one.hdf5").options.char_cnn is not None  # a name in the folder
    assert load_bilm(tmp_path, weight_file).options.char_cnn is None
    again = dump_weights(tiny_run("words"), tmp_path / "one.hdf5")
    assert again == first[:2]
