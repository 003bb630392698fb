"""Parquet in and out, and into data frames; `make test-clients` has the packages."""

import numpy as np
import pytest
from test_outputs import FILES, SENTENCES, close

from bilm.data.readers import Corpus
from bilm.embedding import outputs
from bilm.embedding.corpus import dump_bilm_embeddings
from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import DataError, OptionsError

pytestmark = [pytest.mark.clients, pytest.mark.short]

pq = pytest.importorskip("pyarrow.parquet", reason="make test-clients has pyarrow")
pd = pytest.importorskip("pandas", reason="make test-clients has pandas")
pl = pytest.importorskip("polars", reason="make test-clients has Polars")

IDS = [f"s/{i}" for i in range(len(SENTENCES))]


@pytest.fixture(scope="module")
def embedder():
    return ElmoEmbedder(*FILES)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.parquet"
    frame = pd.DataFrame({"n": 1, "text": [" ".join(words) for words in SENTENCES], "id": IDS})
    frame.to_parquet(path)
    return path


def dump(table, outfile, **how):
    how = {"column": "text", "id_column": "id", "part_sentences": 5} | how
    return dump_bilm_embeddings(None, table, *FILES, outfile, **how)


# --- in ---


def test_parquet_columns_of_text_and_of_words(table, tmp_path):
    found = list(Corpus(table, column="text", id_column="id"))
    assert [record.words for record in found] == SENTENCES
    assert [record.id for record in found] == IDS
    pl.DataFrame({"words": [["a b", "c"], [], None]}).write_parquet(tmp_path / "words.parquet")
    found = Corpus(tmp_path / "words.parquet", column="words")
    assert [record.words for record in found] == [["a b", "c"], [], []]
    categories = pd.DataFrame({"text": pd.Categorical(["a b", "c", "a b"])})
    categories.to_parquet(tmp_path / "kinds.parquet")
    found = Corpus(tmp_path / "kinds.parquet", column="text")
    assert [record.words for record in found] == [["a", "b"], ["c"], ["a", "b"]]


def test_invalid_parquet_is_refused(table, tmp_path):
    (tmp_path / "half.parquet").write_bytes(table.read_bytes()[:-30])
    for name, column, message in [
        ("table.parquet", "none", r"column 'none' is missing; found 'n', 'text', 'id'"),
        ("table.parquet", "n", r"row 1: 'n' is 1, expected text or a list of words"),
        ("half.parquet", "text", r"half\.parquet: not a readable Parquet file"),
        ("no.parquet", "text", r"no\.parquet: not a readable Parquet file .*No such file"),
    ]:
        with pytest.raises(DataError, match=message):
            list(Corpus(tmp_path / name, column=column))


# --- out ---


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_parquet_has_a_column_per_layer(table, tmp_path, embedder, dtype, monkeypatch):
    monkeypatch.setattr(outputs, "GROUP_BYTES", 2000)  # several groups of rows
    dump(table, tmp_path / "out.parquet", dtype=dtype)
    found = pq.read_table(tmp_path / "out.parquet")
    names = [f"layer_{i}" for i in range(embedder.n_layers)]
    assert found.column_names == ["id", "words", *names]
    assert found["words"].to_pylist() == SENTENCES and found["id"].to_pylist() == IDS
    assert pq.ParquetFile(tmp_path / "out.parquet").num_row_groups > 1
    for i, array in enumerate(embedder.embed_batch(SENTENCES)):
        for name, layer in zip(names, array, strict=True):
            vectors = found[name][i].values
            assert vectors.type.list_size == embedder.dim
            close(vectors.flatten().to_numpy().reshape(layer.shape), layer, dtype)


def test_parquet_in_numpy_pandas_and_polars(table, tmp_path, embedder):
    dump(table, tmp_path / "out.parquet", layers="average", pool="mean")
    expected = embedder.sentence_vectors(SENTENCES)
    frame = pd.read_parquet(tmp_path / "out.parquet")
    assert list(frame) == ["id", "sentence", "vector"]
    close(np.stack(frame["vector"]), expected)
    assert frame["sentence"].str.split().tolist() == SENTENCES
    frame = pl.read_parquet(tmp_path / "out.parquet")
    close(frame["vector"].to_numpy(), expected)
    assert frame["id"].to_list() == IDS


def test_parquet_float16_in_data_frames(table, tmp_path, embedder):
    dump(table, tmp_path / "out.parquet", layers="average", pool="mean", dtype="float16")
    expected = embedder.sentence_vectors(SENTENCES)
    close(np.stack(pd.read_parquet(tmp_path / "out.parquet")["vector"]), expected, "float16")
    found = pl.read_parquet(tmp_path / "out.parquet")["vector"].to_numpy()
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_parquet_words_and_layers_by_number(table, tmp_path, embedder):
    dump(table, tmp_path / "out.parquet", layers=[2, 0])
    frame = pl.read_parquet(tmp_path / "out.parquet")
    assert frame.columns == ["id", "words", "layer_2", "layer_0"]
    first = embedder.embed_sentence(SENTENCES[0])
    close(np.array(frame["layer_2"][0].to_list(), np.float32), first[2])
    with pytest.raises(OptionsError, match="a layer occurs twice"):
        dump(table, tmp_path / "twice.parquet", layers=[1, 1])


def test_parquet_of_an_empty_corpus(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    outfile = tmp_path / "out.parquet"
    assert dump_bilm_embeddings(None, tmp_path / "empty.txt", *FILES, outfile, pool="max") == 0
    assert pl.read_parquet(outfile).height == 0
