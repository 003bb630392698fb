"""What a trained model is stored as: the same vectors, under the names that other readers know."""

import json
import shutil
import signal
import subprocess
import sys

import h5py
import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
import killed_export
from killed_export import FILES
from tiny_runs import VARIANTS, VOCABULARY, tiny_run

from bilm.ask import load_scorer
from bilm.data.batcher import Batcher, TokenBatcher
from bilm.errors import DataError, WeightsError
from bilm.storage.checkpoint import load_run, model_vocabulary
from bilm.storage.load import load_bilm
from bilm.storage.names import dataset_names, stored_values
from bilm.training import export
from bilm.training.export import dump_weights

LSTM = ("W_0", "B", "W_P_0")
SENTENCE = ["money", "w3", "日本語", "unheard-of", "Москва"]


def trained_vectors(model):
    """The vectors in the graph that was trained: ids as they are, each direction in its order."""
    vocab = model_vocabulary(VOCABULARY, model)
    encode = vocab.encode if model.options.char_cnn is None else vocab.encode_chars
    forward = model.encoder(encode(SENTENCE, split=False)[None])
    backward = model.encoder(encode(SENTENCE[::-1], reverse=True, split=False)[None])
    vectors = {"forward": forward, "backward": backward}
    outputs, _ = model.windows({d: vectors[d] for d in model.directions}, model.zero_state(1))
    layers = [[forward, *outputs["forward"]]]
    if "backward" in outputs:
        layers.append([layer[:, ::-1] for layer in (backward, *outputs["backward"])])
    return np.concatenate([np.stack(direction, axis=1) for direction in layers], axis=-1)


def stored_vectors(model):
    if model.options.char_cnn is None:
        batcher = TokenBatcher(VOCABULARY)
    else:
        batcher = Batcher(None, model.options.char_cnn.max_characters_per_token)
    return model(batcher.batch_sentences([SENTENCE]))["layers"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_loaded_model_gives_the_trained_vectors(variant, tmp_path):
    run = tiny_run(variant)
    weight_file, options_file = dump_weights(run, tmp_path / "weights.hdf5")
    expected = trained_vectors(load_run(run))
    assert expected.shape[:3] == (1, load_run(run).options.lstm.n_layers + 1, len(SENTENCE) + 2)
    found = stored_vectors(load_bilm(options_file, weight_file))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_array_equal(stored_vectors(load_bilm(run)), found)  # a run is a model too


@pytest.mark.parametrize("variant", VARIANTS)
def test_options_hold_what_readers_insist_on(variant, tmp_path):
    run = tiny_run(variant)
    own = (run / "options.json").read_bytes()
    _, options_file = dump_weights(run, tmp_path / "weights.hdf5")
    assert options_file == tmp_path / "options.json"
    options, run_options = json.loads(options_file.read_text()), json.loads(own)
    assert {"n_layers", "cell_clip", "proj_clip", "dim", "projection_dim"} <= set(options["lstm"])
    if "char_cnn" in run_options:
        expected = {"n_highway": 0} | run_options["char_cnn"] | {"n_characters": 262}
        assert options["char_cnn"] == expected
    else:
        assert not options.get("char_cnn")
    assert options["n_tokens_vocab"] == run_options["n_tokens_vocab"]
    assert (run / "options.json").read_bytes() == own


def test_a_runs_own_folder_keeps_its_options(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(tiny_run("characters"), run)
    own = (run / "options.json").read_bytes()
    written = dump_weights(run, run / "elmo.hdf5")
    assert written == [run / "elmo.hdf5", run / "elmo_options.json"]
    assert (run / "options.json").read_bytes() == own
    assert load_bilm(written[1], written[0]).options.char_cnn.n_characters == 262
    assert load_run(run).padding is False


@pytest.mark.parametrize("variant", ["characters", "shared_softmax"])
def test_softmax_with_its_words(variant, tmp_path):
    run = tiny_run(variant)
    written = dump_weights(run, tmp_path / "elmo.hdf5", True, VOCABULARY)
    assert [path.name for path in written] == ["elmo.hdf5", "options.json", "elmo_softmax.hdf5"]
    values = stored_values(load_run(run))
    with h5py.File(written[2]) as file:
        assert dataset_names(file) == {"softmax/W", "softmax/b", "vocabulary"}
        expected = values.get("softmax/W", values.get("embedding"))
        np.testing.assert_array_equal(file["softmax/W"], expected)
        np.testing.assert_array_equal(file["softmax/b"], values["softmax/b"])
        words = file["vocabulary"].asstr()[...].tolist()
    assert words == VOCABULARY.read_text(encoding="utf-8").splitlines()
    assert "日本語" in words
    with h5py.File(written[0]) as file:
        assert not any(name.startswith("softmax") for name in dataset_names(file))


def test_softmax_needs_words(tmp_path):
    run, out = shutil.copytree(tiny_run("characters"), tmp_path / "run"), tmp_path / "out"
    dump_weights(run, out / "elmo.hdf5", include_softmax=True)  # with those of the run
    assert len(list(out.iterdir())) == 3
    (tmp_path / "run" / "vocab.txt").unlink()
    with pytest.raises(DataError, match=r"vocab\.txt: cannot be read"):
        dump_weights(run, tmp_path / "none" / "elmo.hdf5", include_softmax=True)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ("words", "it reads words, not characters"),
        ("forward_only", "it reads forwards only"),
        ("no_cnn_projection", "its token encoder has no CNN_proj"),
        ("no_projection", "its LSTM has no projection W_P_0"),
        ("plain", "it spells words in 12 characters, not 50; its layers have no skip connections"),
    ],
)
def test_warning_where_allennlp_cannot_read(variant, reason, tmp_path, caplog):
    dump_weights(tiny_run(variant), tmp_path / "weights.hdf5")
    (warning,) = [m for m in caplog.messages if "AllenNLP" in m]
    assert f"cannot load this model ({reason})" in warning


def test_no_warning_where_it_can(tmp_path, caplog):
    dump_weights(tiny_run("characters"), tmp_path / "weights.hdf5")
    assert not caplog.messages


def test_what_reads_back_differently_is_not_kept(tmp_path, monkeypatch):
    def load_wrongly(*files):
        model = load_bilm(*files)
        model.encoder.bias.assign(model.encoder.bias + 1e-7)
        return model

    run = tiny_run("characters")
    (tmp_path / "weights.hdf5").write_text("what was there")
    monkeypatch.setattr(export, "load_bilm", load_wrongly)
    with pytest.raises(WeightsError, match="CNN_proj/b_proj reads back differently"):
        dump_weights(run, tmp_path / "weights.hdf5", True, VOCABULARY)
    assert [path.name for path in tmp_path.iterdir()] == ["weights.hdf5"]
    assert (tmp_path / "weights.hdf5").read_text() == "what was there"


def test_names_of_one_layer(tmp_path):
    """Written as existing readers expect; the reference's own spelling loads as well."""
    weight_file, options_file = dump_weights(tiny_run("one_layer"), tmp_path / "weights.hdf5")
    expected = stored_vectors(load_bilm(options_file, weight_file))
    with h5py.File(weight_file, "r+") as file:
        for direction in (0, 1):
            rnn = file[f"RNN_{direction}/RNN"]
            assert dataset_names(rnn) == {f"MultiRNNCell/Cell0/LSTMCell/{n}" for n in LSTM}
            rnn.move("MultiRNNCell/Cell0/LSTMCell", "LSTMCell")
            del rnn["MultiRNNCell"]
        assert "RNN_0/RNN/LSTMCell/W_0" in file
    found = stored_vectors(load_bilm(options_file, weight_file))
    np.testing.assert_array_equal(found, expected)


def answers(folder):
    """What an export says: log-probabilities, and vectors; None where it is refused."""
    found = []
    for ask in (
        lambda: next(load_scorer(options_file=folder).score([SENTENCE])).forward,
        lambda: stored_vectors(load_bilm(folder)),
    ):
        try:
            found.append(np.asarray(ask()))
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
        patch.setattr(export, "load_run", killed_export.other_run)
        dump_weights(run, folder / "new", True, VOCABULARY)
    old, new = answers(folder / "old"), answers(folder / "new")
    assert not any(same(a, b) for a, b in zip(old, new, strict=True))
    return folder / "old", old[0], new


def check_mixture(folder, n_renamed, new):
    """Either export answers, or neither: never a mixture of the two."""
    expected = {1: [None, None], 2: [None, new[1]], 3: new}[n_renamed]
    for found, answer in zip(answers(folder), expected, strict=True):
        assert (found is None and answer is None) or same(found, answer)
    assert sorted(path.name for path in folder.iterdir() if path.name[0] != ".") == FILES


@pytest.mark.parametrize("n_renamed", [1, 2])
def test_an_export_that_fails_between_two_files(n_renamed, two_exports, tmp_path, monkeypatch):
    def fail():
        raise OSError("the disk is gone")

    run, (whole, _, new) = tiny_run("characters"), two_exports
    folder = shutil.copytree(whole, tmp_path / "elmo")
    monkeypatch.setattr(export, "load_run", killed_export.other_run)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", killed_export.stopping(n_renamed, folder, fail))
        with pytest.raises(OSError, match="the disk is gone"):
            dump_weights(run, folder, True, VOCABULARY)
    check_mixture(folder, n_renamed, new)
    assert sorted(path.name for path in folder.iterdir()) == FILES
    dump_weights(run, folder, True, VOCABULARY)  # again, as the error says
    check_mixture(folder, 3, new)


def test_an_export_that_is_killed_between_two_files(two_exports, tmp_path):
    whole, _, new = two_exports
    folders = [shutil.copytree(whole, tmp_path / f"elmo{n}") for n in (1, 2)]
    killed = []
    for n, folder in enumerate(folders, start=1):
        arguments = tiny_run("characters"), folder, VOCABULARY, str(n)
        killed.append(subprocess.Popen([sys.executable, killed_export.__file__, *arguments]))
    assert [process.wait(120) for process in killed] == [-signal.SIGKILL] * 2
    for n, folder in enumerate(folders, start=1):
        check_mixture(folder, n, new)


def test_files_without_an_id_go_together(two_exports, tmp_path):
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


def test_the_same_export_twice_is_the_same_to_the_byte(two_exports, tmp_path):
    whole = two_exports[0]
    dump_weights(tiny_run("characters"), tmp_path / "again", True, VOCABULARY)
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize("name", ["model2", "model2/", "model.v2", "there"])
def test_an_outfile_that_is_a_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    weight_file, options_file = dump_weights(tiny_run("characters"), name)
    assert (str(weight_file), options_file.name) == (f"{name.rstrip('/')}/weights.hdf5", FILES[0])
    load_bilm(name)


def test_an_outfile_that_is_another_file(tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(WeightsError, match=r"notes: .* ends in \.hdf5 or \.h5, or a folder"):
        dump_weights(tiny_run("characters"), tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.parametrize("variant", ["characters", "words"])
def test_options_that_are_no_exports_stay(variant, tmp_path):
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
    with pytest.raises(WeightsError, match=r"weights_options\.json: .* give another --output"):
        dump_weights(run, tmp_path / "weights.hdf5")


def test_options_of_an_export_are_replaced(tmp_path):
    """With an id, and as they were before there was one."""
    run = tiny_run("characters")
    for _ in range(2):
        written = dump_weights(run, tmp_path / "weights.hdf5")
        assert written[1].name == "options.json"
        values = json.loads(written[1].read_text())
        del values["bilm_export"]
        written[1].write_text(json.dumps(values))
