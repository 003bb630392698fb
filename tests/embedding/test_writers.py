"""One suite for the writers of all formats: what `ElmoEmbedder` returns is read back."""

import errno
import gc
import gzip
import sys

import h5py
import numpy as np
import pytest
from disk_faults import small_disk
from stored_files import FILES

from bilm.embedding import writers
from bilm.embedding.corpus import dump_bilm_embeddings
from bilm.embedding.embedding_file import read_embeddings, read_ids
from bilm.errors import BilmError, DataError, OptionsError

pytestmark = pytest.mark.usefixtures("one_embedder")
SENTENCES = [f"line {i} of the text .".split() for i in range(9)]
SENTENCES += [[], ["Где", "ты", "😀", "?"], ["end"]]
IDS = [f"s/{i}" for i in range(len(SENTENCES))]
FORMATS = ["hdf5", "npz", pytest.param("parquet", marks=[pytest.mark.clients, pytest.mark.short])]
SETTINGS = {
    "each word": {},
    "layers by number": {"layers": [2, 0]},
    "one layer": {"layers": "top", "dtype": "float16"},
    "an array of numbers": {"layers": np.array([0, 1]), "dtype": np.dtype("float16")},
    "mean": {"pool": "mean"},
    "maximum": {"pool": "max", "layers": "average", "normalize": True},
}


@pytest.fixture
def table(tmp_path):
    """The sentences as a CSV table with ids."""
    path = tmp_path / "table.csv.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("id,text\n")
        rows = zip(IDS, SENTENCES, strict=True)
        file.writelines(f"{id_},{' '.join(words)}\n" for id_, words in rows)
    return path


def dump(table, outfile, **how):
    how = {"column": "text", "id_column": "id", "part_sentences": 4} | how
    n = dump_bilm_embeddings(None, table, *FILES, outfile, **how)
    assert not [path for path in outfile.parent.iterdir() if path.is_dir()]
    return n


def read(path, is_pooled):
    """Return ids, words (None if not stored) and vectors of all sentences."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            ids = file["ids"].tolist() if "ids" in file else None
            if is_pooled:
                return ids, None, list(file["vectors"])
            places = zip(file["offsets"], file["offsets"][1:], strict=False)
            each = [file["vectors"][start:stop] for start, stop in places]
            return ids, None, [x.swapaxes(0, 1) if x.ndim == 3 else x for x in each]
    if path.suffix == ".hdf5":
        with h5py.File(path) as file:
            ids = read_ids(path) if "by_id" in file.attrs else None
        found = list(read_embeddings(path))
        assert [number for number, *_ in found] == list(range(len(found)))
        return ids, [words for _, words, _ in found], [vectors for *_, vectors in found]
    return read_parquet(path, is_pooled)


def read_parquet(path, is_pooled):
    from pyarrow import parquet

    rows = parquet.read_table(path)
    names = [name for name in rows.column_names if name.startswith(("vector", "layer_"))]
    kind = rows.schema.field(names[0]).type
    kind = kind if is_pooled else kind.value_type
    dtype = {"float": "float32", "halffloat": "float16"}[str(kind.value_type)]
    shape = (kind.list_size,) if is_pooled else (-1, kind.list_size)
    layers = [[np.array(x, dtype).reshape(shape) for x in rows[n].to_pylist()] for n in names]
    vectors = layers[0] if len(names) == 1 else [np.stack(x) for x in zip(*layers, strict=True)]
    ids = rows["id"].to_pylist() if "id" in rows.column_names else None
    if is_pooled:
        return ids, [text.split() for text in rows["sentence"].to_pylist()], vectors
    return ids, rows["words"].to_pylist(), vectors


@pytest.mark.parametrize(
    ("part_sentences", "has_ids"), [(4, True), (100, False)], ids=["parts and ids", "neither"]
)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("form", FORMATS)
def test_written_vectors_are_read_back(
    table, tmp_path, stored_embedder, monkeypatch, form, name, part_sentences, has_ids
):
    monkeypatch.setattr(writers, "GROUP_BYTES", 3000)  # several groups per part
    how, outfile = SETTINGS[name], tmp_path / f"out.{form}"
    id_column = "id" if has_ids else None
    n = dump(table, outfile, part_sentences=part_sentences, id_column=id_column, **how)
    is_pooled, dtype = "pool" in how, str(how.get("dtype", "float32"))
    ids, words, vectors = read(outfile, is_pooled)
    assert n == len(SENTENCES) and ids == (IDS if has_ids else None)
    assert words is None or words == SENTENCES
    wanted = {key: value for key, value in how.items() if key != "dtype"}
    embedded = stored_embedder.embed_sentences(SENTENCES, **wanted)
    for found, expected in zip(vectors, embedded, strict=True):
        assert found.dtype == dtype and found.shape == expected.shape
        tolerance = {"float32": 1e-5, "float16": 2e-3}[dtype]
        np.testing.assert_allclose(found, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("pool", ["none", "mean"])
@pytest.mark.parametrize("form", FORMATS)
def test_empty_corpus_gives_an_empty_file(tmp_path, form, pool):
    (tmp_path / "empty.txt").write_text("")
    outfile = tmp_path / f"out.{form}"
    assert dump(tmp_path / "empty.txt", outfile, column=None, id_column=None, pool=pool) == 0
    assert read(outfile, pool == "mean")[2] == []


@pytest.mark.parametrize("form", FORMATS)
def test_full_disk_is_one_error_and_leaves_nothing(table, tmp_path, form, monkeypatch):
    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)  # of destructors
    with small_disk(2000), pytest.raises(OSError) as caught:
        dump(table, tmp_path / f"out.{form}")
    gc.collect()
    assert (caught.value.errno, ignored) == (errno.EFBIG, [])
    assert f"out.{form}" in caught.value.filename
    del caught
    assert list(tmp_path.iterdir()) == [table]


def test_parquet_without_its_package(table, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(BilmError, match=r"out\.parquet: Parquet requires pyarrow.*\[parquet\]"):
        dump(table, tmp_path / "out.parquet")


def test_outputs_with_unknown_endings_are_refused(table, tmp_path):
    for name, message in [("v.csv", r"unknown ending '\.csv'; expected"), ("v", "without an end")]:
        with pytest.raises(OptionsError, match=message):
            dump(table, tmp_path / name)


def write_fasta(tmp_path, *ids):
    (tmp_path / "p.fasta").write_text("".join(f">{id_}\nMK\n" for id_ in ids))
    return tmp_path / "p.fasta"


def dump_fasta(path, name, **how):
    return dump_bilm_embeddings(None, path, *FILES, path.with_name(name), layers="top", **how)


def test_hdf5_datasets_are_named_by_ids(tmp_path):
    path = write_fasta(tmp_path, "a/1", "sentence_to_index", "0", ".")
    dump_fasta(path, "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert sorted(file) == ["0", "_", "a_1", "sentence_to_index"]
        assert file["a_1"].attrs["id"] == "a/1"
    assert [number for number, *_ in read_embeddings(tmp_path / "out.hdf5")] == [0, 1, 2, 3]
    assert read_ids(tmp_path / "out.hdf5") == ["a/1", "sentence_to_index", "0", "."]


@pytest.mark.parametrize("name", ["out.npz", "out.hdf5"])
def test_duplicate_ids_are_refused(tmp_path, name):
    path = write_fasta(tmp_path, "a", "b/1", "c", "b/1")
    with pytest.raises(DataError, match=r"p\.fasta, record 4: the id 'b/1' occurs before"):
        dump_fasta(path, name)
    assert not (tmp_path / name).exists()


def test_ids_with_equal_dataset_names_are_refused(tmp_path):
    path = write_fasta(tmp_path, "a", "b/1", "c", "b_1")
    with pytest.raises(DataError, match=r"record 4: the id 'b_1' occurs before"):
        dump_fasta(path, "out.hdf5")
    dump_fasta(path, "out.npz")
    assert read_ids(tmp_path / "out.npz") == ["a", "b/1", "c", "b_1"]


@pytest.mark.parametrize("name", ["out.hdf5", "out.npz"])
def test_files_without_ids_and_damaged_files_are_named(table, tmp_path, name):
    dump(table, tmp_path / name, layers="top", id_column=None)
    with pytest.raises(DataError, match="does not contain ids"):
        read_ids(tmp_path / name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=rf"^[^:]*{name}: not a complete"):
        read_ids(tmp_path / name)
