"""Corpora as HDF5, NPZ and Parquet: the vectors of `ElmoEmbedder`, pooled or not."""

import gzip
import signal
import subprocess
import sys
from unittest.mock import Mock

import h5py
import numpy as np
import pytest
from conftest import golden_cases

from bilm.embedding import outputs
from bilm.embedding.corpus import dump_bilm_embeddings
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.embedding_file import read_embeddings, read_ids
from bilm.errors import BilmError, DataError, OptionsError

pytestmark = pytest.mark.usefixtures("one_embedder")
FOLDER = golden_cases("inference")[0].values[0]
FILES = FOLDER / "options.json", FOLDER / "weights.hdf5"
SENTENCES = [f"line {i} of the text .".split() for i in range(9)]
SENTENCES += [[], ["Где", "ты", "😀", "?"], ["end"]]
PART = 4


@pytest.fixture(scope="module")
def embedder():
    return ElmoEmbedder(*FILES)


@pytest.fixture
def table(tmp_path):
    """The sentences as a CSV table with ids."""
    path = tmp_path / "table.csv.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("id,text\n")
        file.writelines(f"s/{i},{' '.join(words)}\n" for i, words in enumerate(SENTENCES))
    return path


def dump(table, outfile, **how):
    how = {"column": "text", "id_column": "id", "part_sentences": PART} | how
    n = dump_bilm_embeddings(None, table, *FILES, outfile, **how)
    assert not [path for path in outfile.parent.iterdir() if path.is_dir()]
    return n


def close(found, expected, dtype="float32"):
    assert found.dtype == dtype
    tolerance = {"float32": 1e-5, "float16": 2e-3}[dtype]
    np.testing.assert_allclose(found, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    "layers, dtype", [("all", "float32"), ("sum", "float16"), ([2, 0], "float32")]
)
def test_npz_of_each_word(table, tmp_path, embedder, layers, dtype):
    assert dump(table, tmp_path / "out.npz", layers=layers, dtype=dtype) == len(SENTENCES)
    expected = embedder.embed_batch(SENTENCES, layers)
    with np.load(tmp_path / "out.npz") as file:
        assert sorted(file) == ["ids", "offsets", "vectors"]
        vectors, offsets, ids = file["vectors"], file["offsets"], file["ids"]
    assert ids.tolist() == [f"s/{i}" for i in range(len(SENTENCES))]
    assert offsets[-1] == len(vectors) == sum(map(len, SENTENCES))
    for i, array in enumerate(expected):
        found = vectors[offsets[i] : offsets[i + 1]]
        close(found, array.swapaxes(0, 1) if array.ndim == 3 else array, dtype)


@pytest.mark.parametrize("pool", ["mean", "max"])
@pytest.mark.parametrize("ending", ["npz", "hdf5"])
def test_pooled_npz_and_hdf5(table, tmp_path, embedder, pool, ending):
    outfile = tmp_path / f"out.{ending}"
    dump(table, outfile, layers="average", pool=pool, normalize=True, part_sentences=5)
    expected = embedder.sentence_vectors(SENTENCES, normalize=True, pool=pool)
    each = embedder.embed_batch(SENTENCES, "average")
    for array, words in zip(expected, each, strict=True):
        pooled = getattr(words, pool)(axis=0) if len(words) else np.zeros(embedder.dim)
        np.testing.assert_allclose(array, pooled / (np.linalg.norm(pooled) or 1), atol=1e-6)
    ids = [f"s/{i}" for i in range(len(SENTENCES))]
    if ending == "npz":
        with np.load(outfile) as file:
            assert sorted(file) == ["ids", "vectors"]
            close(file["vectors"], expected)
            assert file["ids"].tolist() == ids
    else:
        with h5py.File(outfile) as file:
            assert sorted(file) == ["ids", "sentences", "vectors"]
            close(file["vectors"][:], expected)
            assert file["ids"].asstr()[:].tolist() == ids
            assert [s.split() for s in file["sentences"].asstr()] == SENTENCES


def test_pooled_layers_are_separate(table, tmp_path, embedder):
    dump(table, tmp_path / "out.hdf5", layers="all", pool="mean")
    with h5py.File(tmp_path / "out.hdf5") as file:
        close(file["vectors"][:], embedder.sentence_vectors(SENTENCES, "all"))


def test_layers_may_be_an_array(table, tmp_path):
    for name, layers in (("list", [0, 1]), ("array", np.array([0, 1]))):
        dump(table, tmp_path / f"{name}.npz", pool="mean", layers=layers)
    found, expected = (np.load(tmp_path / f"{k}.npz")["vectors"] for k in ("array", "list"))
    np.testing.assert_array_equal(found, expected)


def test_hdf5_datasets_are_named_by_ids(table, tmp_path, embedder):
    dump(table, tmp_path / "out.hdf5", layers="top")
    expected = embedder.embed_batch(SENTENCES, "top")
    with h5py.File(tmp_path / "out.hdf5") as file:
        close(file["s_10"][:], expected[10])
        assert file["s_10"].attrs["id"] == "s/10"
    found = list(read_embeddings(tmp_path / "out.hdf5"))
    assert [number for number, *_ in found] == list(range(len(SENTENCES)))
    assert [words for _, words, _ in found] == SENTENCES


def test_id_named_like_the_index_of_allennlp(tmp_path):
    (tmp_path / "p.fasta").write_text(">a\nMK\n>sentence_to_index\nMKV\n>0\nM\n")
    dump_bilm_embeddings(None, tmp_path / "p.fasta", *FILES, tmp_path / "out.hdf5")
    found = [(number, words) for number, words, _ in read_embeddings(tmp_path / "out.hdf5")]
    assert found == [(0, ["M", "K"]), (1, ["M", "K", "V"]), (2, ["M"])]


def test_npz_does_not_depend_on_group_size(table, tmp_path, monkeypatch):
    dump(table, tmp_path / "out.npz", layers="all")
    whole = (tmp_path / "out.npz").read_bytes()
    monkeypatch.setattr(outputs, "GROUP_BYTES", 1)
    dump(table, tmp_path / "out.npz", layers="all")
    assert (tmp_path / "out.npz").read_bytes() == whole


def test_npz_and_hdf5_of_an_empty_corpus(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    for name in ("words.npz", "pooled.npz", "pooled.hdf5"):
        pool = "none" if name == "words.npz" else "mean"
        assert (
            dump_bilm_embeddings(None, tmp_path / "empty.txt", *FILES, tmp_path / name, pool=pool)
            == 0
        )
    with np.load(tmp_path / "words.npz") as file:
        assert file["offsets"].tolist() == [0] and len(file["vectors"]) == 0


# --- interrupted ---

KILLED = """
import os, signal, sys
from pathlib import Path
from bilm.embedding import outputs
from bilm.embedding.corpus import dump_bilm_embeddings
sums, done = outputs.accumulate, []
def sums_or_death(*arguments, **how):
    done.append(arguments)
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return sums(*arguments, **how)
outputs.accumulate = sums_or_death
table, options, weights, outfile = map(Path, sys.argv[1:])
dump_bilm_embeddings(None, table, options, weights, outfile, part_sentences=4, column="text",
                     id_column="id")
"""


def test_npz_after_sigkill_equals_undisturbed_run(table, tmp_path):
    """A process is killed in the third part; the continued file equals an undisturbed one."""
    dump(table, tmp_path / "whole.npz")
    killed = subprocess.run([sys.executable, "-c", KILLED, table, *FILES, tmp_path / "out.npz"])
    assert killed.returncode == -signal.SIGKILL
    parts = tmp_path / "out.npz.parts"
    assert {"000000.rows", "000001.rows"} <= {path.name for path in parts.iterdir()}
    assert not (parts / "000002.rows").exists()
    before = (parts / "000001.rows").stat().st_mtime_ns
    with pytest.raises(DataError, match="in dtype, pool; repeat"):
        dump(table, tmp_path / "out.npz", dtype="float16", pool="mean")
    assert (parts / "000001.rows").stat().st_mtime_ns == before
    dump_bilm_embeddings(
        None,
        table,
        *FILES,
        tmp_path / "out.npz",
        part_sentences=PART,
        column="text",
        id_column="id",
    )
    assert (tmp_path / "out.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    assert not parts.exists()


@pytest.mark.parametrize("change", [lambda b: b[:-9], lambda b: b"", lambda b: b + b])
def test_damaged_parts_are_named(table, tmp_path, change, monkeypatch):
    with monkeypatch.context() as patched, pytest.raises(OSError, match="disk full"):
        patched.setattr(outputs.zipfile, "ZipFile", Mock(side_effect=OSError("disk full")))
        dump(table, tmp_path / "out.npz")
    part = tmp_path / "out.npz.parts" / "000001.rows"
    part.write_bytes(change(part.read_bytes()))
    with pytest.raises(DataError, match=r"000001\.rows: damaged .*; remove it and repeat"):
        dump(table, tmp_path / "out.npz")
    part.unlink()
    dump(table, tmp_path / "out.npz")


# --- ids ---


@pytest.mark.parametrize("n_long", [0, 1])
@pytest.mark.parametrize("pool", ["none", "mean"])
def test_npz_ids_are_compact(tmp_path, monkeypatch, n_long, pool):
    """One long id does not enlarge the file by its length times the number of sentences."""
    monkeypatch.setattr(outputs, "STRINGS_BYTES", 0)
    ids = [f"é{i}" for i in range(300 - n_long)] + ["x" * 1000] * n_long
    (tmp_path / "p.fasta").write_text("".join(f">{id_}\nMK\n" for id_ in ids), encoding="utf-8")
    outfile = tmp_path / "out.npz"
    how = {"layers": "top", "pool": pool, "dtype": "float16"}
    dump_bilm_embeddings(None, tmp_path / "p.fasta", *FILES, outfile, **how)
    assert read_ids(outfile) == ids
    with np.load(outfile) as file:
        arrays = {name: file[name] for name in file}
    names = {"ids_utf8", "ids_offsets"} if n_long else {"ids"}
    assert set(arrays) == {"vectors", *names} | ({"offsets"} if pool == "none" else set())
    assert sum(arrays[name].nbytes for name in names) < 10_000


def test_read_ids_of_each_format(table, tmp_path):
    expected = [f"s/{i}" for i in range(len(SENTENCES))]
    for name, pool in (("a.npz", "none"), ("b.npz", "max"), ("a.hdf5", "none"), ("b.hdf5", "max")):
        dump(table, tmp_path / name, layers="top", pool=pool)
        assert read_ids(tmp_path / name) == expected
    dump(table, tmp_path / "n.npz", layers="top", id_column=None)
    dump(table, tmp_path / "n.hdf5", layers="top", id_column=None)
    for name in ("n.npz", "n.hdf5"):
        with pytest.raises(DataError, match="does not contain ids"):
            read_ids(tmp_path / name)
    for name in ("a.npz", "a.hdf5"):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(DataError, match=rf"{name}: "):
            read_ids(tmp_path / name)


@pytest.mark.parametrize("name", ["out.hdf5", "out.npz"])
def test_ids_with_nul_are_refused(tmp_path, name):
    (tmp_path / "p.jsonl").write_text(r'{"id": "a\u0000b", "text": "a"}')
    columns = {"column": "text", "id_column": "id"}
    with pytest.raises(DataError, match=r"p\.jsonl: the id 'a\\x00b' contains NUL"):
        dump_bilm_embeddings(None, tmp_path / "p.jsonl", *FILES, tmp_path / name, **columns)


# --- ids, layers and pools that are refused ---


def test_duplicate_ids_are_refused(tmp_path):
    (tmp_path / "p.fasta").write_text(">a\nMK\n>b/1\nMK\n>c\nM\n>b/1\nKV\n")
    for name in ("out.npz", "out.hdf5"):
        with pytest.raises(DataError, match=r"p\.fasta: records 2 and 4 both have the id 'b/1'"):
            dump_bilm_embeddings(None, tmp_path / "p.fasta", *FILES, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_ids_with_equal_dataset_names_are_refused(tmp_path):
    (tmp_path / "p.fasta").write_text(">a\nMK\n>b/1\nMK\n>c\nM\n>b_1\nKV\n")
    expected = (
        r"p\.fasta: records 2 and 4 have the ids 'b/1' and 'b_1', which both become 'b_1' in HDF5"
    )
    with pytest.raises(DataError, match=expected):
        dump_bilm_embeddings(None, tmp_path / "p.fasta", *FILES, tmp_path / "out.hdf5")
    for name, pool in (("out.npz", "none"), ("out.hdf5", "mean")):
        dump_bilm_embeddings(None, tmp_path / "p.fasta", *FILES, tmp_path / name, pool=pool)
    assert np.load(tmp_path / "out.npz")["ids"].tolist() == ["a", "b/1", "c", "b_1"]


def test_invalid_pooling_is_refused(table, tmp_path, embedder):
    for how, message in [
        ({"pool": "sum"}, "pool is 'sum', expected one of none, mean, max"),
        ({"normalize": True}, "normalize requires one vector per sentence"),
    ]:
        with pytest.raises(OptionsError, match=message):
            dump_bilm_embeddings(None, table, *FILES, tmp_path / "o", column="text", **how)
    with pytest.raises(OptionsError, match="expected mean or max"):
        embedder.sentence_vectors(SENTENCES, pool="none")


def test_parquet_without_its_package(table, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BilmError, match=r"out\.parquet: Parquet requires pyarrow.*\[parquet\]"):
        dump_bilm_embeddings(None, table, *FILES, tmp_path / "out.parquet", column="text")
