"""Arrow record batches; `make test-clients` has pyarrow."""

import os
import shutil

import h5py
import numpy as np
import pytest
from stored_files import FILES

from bilm.cluster import batches, embed_batches, output_schema
from bilm.embedding import shared
from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import DataError, OptionsError

pytestmark = pytest.mark.clients

pyarrow = pytest.importorskip("pyarrow", reason="make test-clients has pyarrow")

TEXTS = [f"sentence {i} of the table" for i in range(60)] + ["", None, "Где ты 😀 ?"]


@pytest.fixture
def embedder(stored_embedder):
    return stored_embedder


@pytest.fixture
def table():
    return pyarrow.table({"id": list(range(len(TEXTS))), "text": TEXTS, "n": [1.5] * len(TEXTS)})


def words(text):
    return (text or "").split()


def vectors_of(column, i):
    return np.array(column[i].as_py(), np.float32)


@pytest.mark.parametrize("layers", ["average", "all", [0, 2]])
@pytest.mark.parametrize("pool", ["none", "mean"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_vectors_of_batches_equal_those_of_the_embedder(embedder, table, layers, pool, size):
    parts = list(embed_batches(table.to_batches(size), embedder, "text", layers, pool))
    found = pyarrow.Table.from_batches(parts)
    assert found.schema == output_schema(table.schema, embedder, "text", layers, pool)
    assert found["id"].to_pylist() == table["id"].to_pylist()
    text = "words" if pool == "none" else "sentence"
    names = {"average": ["vectors" if pool == "none" else "vector"]}.get(str(layers))
    names = names or [f"layer_{i}" for i in (range(3) if layers == "all" else layers)]
    assert found.column_names == ["id", "n", text, *names]
    for i in (0, 5, 60, 61, 62):
        expected = embedder.embed_sentence(words(TEXTS[i]), layers)
        if pool == "mean":
            expected = embedder.sentence_vectors([words(TEXTS[i])], layers)[0]
        expected = expected if len(names) > 1 else expected[None]
        for name, layer in zip(names, expected, strict=True):
            actual = vectors_of(found[name], i).reshape(layer.shape)
            np.testing.assert_allclose(actual, layer, atol=1e-5)
    kind = found.schema.field(names[0]).type
    kind = kind if pool == "mean" else kind.value_type
    assert pyarrow.types.is_fixed_size_list(kind) and kind.list_size == embedder.dim


def test_lists_of_words_and_text_have_the_same_vectors(embedder, table):
    lists = pyarrow.table({"text": [None if t is None else t.split() for t in TEXTS]})
    one, other = (
        pyarrow.Table.from_batches(embed_batches(t.to_batches(), embedder, "text", keep=[]))
        for t in (table, lists)
    )
    assert one.column_names == ["sentence", "vector"] and one.equals(other)


def test_large_batch_is_divided(embedder, table, monkeypatch):
    monkeypatch.setattr(batches, "GROUP_BYTES", 5_000)
    parts = list(embed_batches(table.to_batches(), embedder, "text", pool="none"))
    assert len(parts) > 3
    found = pyarrow.Table.from_batches(parts)
    assert found["id"].to_pylist() == table["id"].to_pylist()
    assert found["words"].to_pylist() == [words(text) for text in TEXTS]


def test_batches_are_read_as_they_are_needed(embedder):
    read = []

    def endless():
        while True:
            read.append(1)
            yield pyarrow.record_batch({"text": ["some words of a sentence"] * 1000})

    found = embed_batches(endless(), embedder, "text")
    assert next(found).num_rows == 1000
    assert len(read) < 60


def test_model_is_opened_once_per_process(table, monkeypatch):
    made = []

    class Counted(ElmoEmbedder):
        def __init__(self, *arguments, **settings):
            made.append(1)
            super().__init__(*arguments, **settings)

    monkeypatch.setattr(shared, "ElmoEmbedder", Counted)
    shared._load.cache_clear()
    how = {"weights": FILES[1], "dtype": "float16"}
    for _ in range(3):
        (batch,) = embed_batches(table.to_batches(), FILES[0], "text", **how)
    assert made == [1]
    assert batch.schema.field("vector").type.value_type == pyarrow.float16()
    shared._load.cache_clear()


@pytest.mark.parametrize(
    ("column", "how", "error", "message"),
    [
        ("words", {}, DataError, "the data: column 'words' is missing; found 'id', 'text', 'n'"),
        ("n", {}, DataError, "record batch: 'n' is .*, expected text or a list of words"),
        ("text", {"layers": "0,0"}, OptionsError, "a layer occurs twice"),
        ("text", {"keep": "id"}, OptionsError, "keep is 'id', expected a list of names"),
        ("text", {"keep": ["x"]}, DataError, "keep: column 'x' is missing"),
    ],
)
def test_wrong_arguments_are_refused(embedder, table, column, how, error, message):
    with pytest.raises(error, match=message):
        list(embed_batches(table.to_batches(), embedder, column, **how))


def test_kept_column_with_the_name_of_a_result_is_refused(embedder, table):
    renamed = table.rename_columns(["vector", "text", "n"])
    with pytest.raises(OptionsError, match="the result would have 2 columns 'vector'"):
        list(embed_batches(renamed.to_batches(), embedder, "text"))


def test_model_that_is_replaced_is_opened_again(table, tmp_path):
    weights = tmp_path / "weights.hdf5"
    shutil.copy(FILES[1], weights)

    def vector():
        found = embed_batches(table.to_batches(), FILES[0], "text", weights=weights)
        return vectors_of(next(found)["vector"], 0)

    before = vector()
    shutil.copy(weights, tmp_path / "new")
    with h5py.File(tmp_path / "new", "r+") as file:
        file["char_embed"][...] *= 2
    os.replace(tmp_path / "new", weights)
    after = vector()
    assert not np.allclose(before, after)
    expected = ElmoEmbedder(FILES[0], weights).sentence_vectors([words(TEXTS[0])], "average")[0]
    np.testing.assert_allclose(after, expected, atol=1e-5)


def test_columns_that_occur_twice_are_refused(embedder, table):
    with pytest.raises(OptionsError, match="the result would have 2 columns 'id'"):
        list(embed_batches(table.to_batches(), embedder, "text", keep=["id", "id"]))
    columns = [table["id"], table["id"], table["text"]]
    twice = pyarrow.Table.from_arrays(columns, names=["id", "id", "text"])
    with pytest.raises(DataError, match="keep: column 'id' occurs twice"):
        list(embed_batches(twice.to_batches(), embedder, "text"))


def test_table_and_missing_words_are_refused(embedder, table):
    with pytest.raises(DataError, match=r"pass table\.to_batches\(\)"):
        list(embed_batches(table, embedder, "text"))
    batch = pyarrow.record_batch({"text": [["a", None]]})
    with pytest.raises(DataError, match="expected text or a list of words"):
        list(embed_batches([batch], embedder, "text"))
    batch = pyarrow.record_batch({"text": [["a\tb"]]})
    with pytest.raises(DataError, match=r"column 'text'.* contains a tab"):
        list(embed_batches([batch], embedder, "text"))
