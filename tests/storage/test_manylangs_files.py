"""The files of ELMoForManyLangs models: what is read, what is refused and how that is said."""

import io
import json
import os
import pickle
import struct
import tracemalloc
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
from disk_faults import flip_bit
from manylangs_files import Reduced, legacy, write_model, zipped
from stored_files import resolve

from bilm import ElmoEmbedder
from bilm.errors import BilmError, DataError, OptionsError, WeightsError
from bilm.export.hdf5 import dump_weights
from bilm.scoring.scorer import load_scorer
from bilm.storage.formats.pytorch import StateDict, unpickled
from bilm.storage.stored_model import open_model
from bilm.training.source import Source

SENTENCES = [["The", "cat", "\U0001f600"], []]


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "model")


def options_of(folder):
    return open_model(folder).options


def change(folder, part, **values):
    path = folder / "model.json"
    content = json.loads(path.read_text())
    content[part].update(values)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("kind", ["f4", "f8", "f2"])
@pytest.mark.parametrize("packed", [False, True])
def test_state_dict_reads_each_dtype_in_zip_and_legacy_files(tmp_path, kind, packed):
    folder = write_model(tmp_path / "model", dtype=kind, packed=packed)
    expected = write_model(tmp_path / "expected")
    found = [ElmoEmbedder(f).embed_sentence(SENTENCES[0]) for f in (folder, expected)]
    np.testing.assert_allclose(*found, atol=3e-3 if kind == "f2" else 1e-6)


PLACES = ["/home/a/conf.json", "conf.json", "C:\\a\\conf.json", "../conf.json"]


@pytest.mark.parametrize("place", PLACES)
def test_manylangs_configuration_is_found_in_the_folder(model, place):
    (model / "model.json").rename(model / "conf.json")
    (model / "config.json").write_text(json.dumps({"config_path": place}))
    assert options_of(model).lstm.n_layers == 1


def test_manylangs_configuration_outside_the_folder_is_not_opened(model):
    (model / "model.json").rename(model.parent / "model.json")
    for place in ("../model.json", str(model.parent / "model.json"), "a/../../model.json", "", 3):
        (model / "config.json").write_text(json.dumps({"config_path": place}))
        with pytest.raises(OptionsError, match="config_path"):
            resolve(model) and options_of(model)


def test_manylangs_published_configurations_are_packaged(model):
    place = "configs/cnn_0_100_512_4096_sample.json"
    (model / "config.json").write_text(json.dumps({"config_path": place}))
    with pytest.raises(WeightsError, match="is missing; the options require it"):
        ElmoEmbedder(model)  # whose weights are smaller


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        ("encoder", {"name": "lstm"}, 'encoder.name: found "lstm", expected "elmo"'),
        ("token_embedder", {"name": "lstm"}, 'token_embedder.name: found "lstm", expected "cnn"'),
        ("encoder", {"projection_dim": 6}, "dim: found 6, expected a width different from proj"),
        ("encoder", {"n_layers": 2}, "Cell1/LSTMCell/W_0 is missing"),
        ("encoder", {"cell_clip": -1}, r"encoder.cell_clip: found -1, expected a positive number"),
        ("token_embedder", {"char_dim": 0, "word_dim": 0}, "words, characters: both are missing"),
        ("token_embedder", {"char_dim": 9}, r"char_embed has shape \(12, 3\).*\(12, 9\)"),
    ],
)
def test_invalid_manylangs_configuration_is_refused(model, part, values, message):
    change(model, part, **values)
    with pytest.raises(BilmError, match=message) as error:
        ElmoEmbedder(model)
    assert str(model) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"x\t99\n", "line 13: its id is 99, but the table has 12 rows"),
        (b"x\t-1\n", "line 13: found"),
        (b"x 1\n", "line 13: found"),
        (b"\n", "line 13: found"),
        (b"\xff\t1\n", "line 13: not UTF-8"),
    ],
)
def test_invalid_lexicon_line_is_refused(model, line, message):
    path = model / "char.dic"
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(DataError, match=f"char.dic, {message}"):
        options_of(model)


def test_lexicon_without_a_mark_is_refused(model):
    path = model / "char.dic"
    path.write_bytes(path.read_bytes().replace(b"<bow>", b"<b>"))
    with pytest.raises(DataError, match=r"char\.dic: <bow> missing"):
        options_of(model)
    path.unlink()
    with pytest.raises(DataError, match=r"char\.dic: cannot be read"):
        options_of(model)


def test_lexicon_of_another_model_with_fewer_entries_is_refused(model):
    path = model / "word.dic"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(DataError, match=r"word\.dic: has 8 entries, but the table has 9 rows"):
        options_of(model)


def test_lexicon_lines_are_parsed(model):
    """They end at LF alone; the id follows the last tab; of equal keys the last one counts."""
    path = model / "char.dic"
    extra = "a\t10\u2028\n a\t b \t7\r\n\t8\n\ufeff\t9\na\t6\n"
    path.write_bytes(path.read_bytes() + extra.replace("10\u2028", "10").encode())
    lexicon = options_of(model).lexicon_encoder.characters.lexicon
    assert [lexicon[key] for key in ("a\t b", "\u3000", "\ufeff", "a")] == [7, 8, 9, 6]


def test_manylangs_without_softmax_is_refused_by_scoring_and_training(model, tmp_path):
    with pytest.raises(OptionsError, match=r"ELMoForManyLangs model.* cannot score sentences"):
        load_scorer(model)
    with pytest.raises(OptionsError, match=r"ELMoForManyLangs model.* cannot be fine-tuned"):
        Source(model)
    with pytest.raises(OptionsError, match="cannot be exported to HDF5"):
        dump_weights(model, tmp_path / "out")


class Shell:
    def __reduce__(self):
        return os.system, ("touch executed",)


ARRAY = np.arange(6, dtype="f4").reshape(2, 3)


def reduced(*view):
    return legacy({"a": Reduced(ARRAY, *view)})


HOSTILE = {
    "os.system": (legacy({"a": Shell()}), r"refers to posix\.system, .*no code in the file was"),
    "a pickle": (pickle.dumps({"a": [1]}, 2), "not a whole state dict"),
    "another version": (legacy({"a": ARRAY}, version=1002), "an unknown version of PyTorch"),
    "big endian": (legacy({"a": ARRAY}, little=False), "not from a little-endian machine"),
    "strides outside": (reduced(0, (2, 3), (4, 1)), "extends beyond its storage of 6 numbers"),
    "negative stride": (reduced(5, (2, 3), (-3, -1)), "shape or strides of a tensor"),
    "stride of 0": (reduced(0, (1 << 40, 3), (0, 1)), "extends beyond its storage of 6 numbers"),
    "a view": (legacy({"a": ARRAY}, view=("1", 0, 2)), "a storage that is a view"),
    "a count too large": (legacy({"a": ARRAY}, count=1 << 50), "truncated or damaged"),
    "nothing": (b"", "not a whole state dict"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_invalid_state_dict_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    content, message = HOSTILE[name]
    (tmp_path / "a.pkl").write_bytes(content)
    with pytest.raises(WeightsError, match=message) as error:
        StateDict("a.pkl")
    assert "a.pkl" in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "executed").exists()


def test_pickle_memo_bomb_uses_little_memory(tmp_path):
    """PyTorch's own pickles number their memo; here one number reserves room for 2^31 objects."""
    content = legacy({"a": ARRAY}).replace(b"q\x00", b"r\xff\xff\xff\x7f", 1)
    (tmp_path / "a.pkl").write_bytes(content)
    tracemalloc.start()
    found = StateDict(tmp_path / "a.pkl")["a"].read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found == ARRAY).all() and peak < 1 << 24


def test_truncated_state_dict_is_refused(tmp_path):
    whole = legacy({"a": ARRAY, "b": ARRAY[0]})
    for n in range(len(whole)):
        (tmp_path / "a.pkl").write_bytes(whole[:n])
        with pytest.raises(WeightsError):
            StateDict(tmp_path / "a.pkl")


def test_state_dict_layouts_of_pytorch_are_read(tmp_path):
    """Transposed, shared and empty tensors, and one that starts inside its storage."""
    tensors = {
        "transposed": Reduced(ARRAY, 0, (3, 2), (1, 3)),
        "inside": Reduced(ARRAY, 3, (3,), (1,)),
        "empty": Reduced(ARRAY, 0, (0, 4), (4, 1)),
    }
    (tmp_path / "a.pkl").write_bytes(legacy(OrderedDict(tensors)))
    found = StateDict(tmp_path / "a.pkl")
    np.testing.assert_array_equal(found["transposed"], ARRAY.T)
    np.testing.assert_array_equal(found["inside"], ARRAY[1])
    assert found["empty"].read().shape == (0, 4)


def test_compressed_or_changed_numbers_of_a_state_dict_are_refused(tmp_path):
    folder = write_model(tmp_path / "model", packed=True)
    path, damaged = folder / "encoder.pkl", tmp_path / "a.pkl"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(damaged, "w") as new:
        for member in old.namelist():
            how = zipfile.ZIP_DEFLATED if member.endswith("/data/0") else zipfile.ZIP_STORED
            new.writestr(member, old.read(member), how)
    with pytest.raises(WeightsError, match="is missing, compressed or not of"):
        StateDict(damaged)
    flip_bit(path, struct.pack("<f", 0.25))  # in the values, which have a checksum
    with pytest.raises(WeightsError, match="cannot be read"):
        ElmoEmbedder(folder)


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (b"K\x00" + b"\x85" * 300_000 + b"K\x00s", "found a key of type tuple"),
        (b"ccollections\nOrderedDict\nN}X\x01\x00\x00\x00aK\x00s\x86b", "truncated or damaged"),
        (b"ctorch._utils\n_rebuild_tensor\n}X\x01\x00\x00\x00aK\x00sb", "truncated or damaged"),
        (b"cbuiltins\neval\nX\x01\x00\x00\x001\x85R", r"refers to builtins\.eval"),
        (b"\x93", "contains the instruction STACK_GLOBAL"),
    ],
    ids=["deep key", "attribute of a class", "attribute of a function", "call", "instruction"],
)
def test_pickles_that_attack_the_reader_are_refused(attack, message):
    with pytest.raises(WeightsError, match=message):
        unpickled(io.BytesIO(b"\x80\x02}" + attack + b"."))


def test_state_dict_tensor_is_in_memory_once_while_it_is_read(tmp_path):
    values = np.random.default_rng(0).random((2000, 1001), np.float32)  # 8 MB, no whole pieces
    (tmp_path / "x.pkl").write_bytes(zipped({"a": values, "b": values[:1] + 1}))
    stored = StateDict(tmp_path / "x.pkl")
    tracemalloc.start()
    found = stored["a"].read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found == values).all() and peak < 1.5 * values.nbytes
