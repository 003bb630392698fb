"""The files for TensorBoard's projector, and TensorBoard that reads them."""

from importlib.util import find_spec

import numpy as np
import pytest
from conftest import GOLDEN
from stored_files import CASE, load_bilm

from bilm.data.vocabulary_builder import build_vocabulary
from bilm.embedding.token_cache import WordVectors
from bilm.errors import DataError
from bilm.export.projector import export_projector

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("counts")
    text = str(GOLDEN / "data" / "train" / "*")
    build_vocabulary(text, folder / "vocab.txt", folder / "counts.tsv")
    return folder / "counts.tsv"


@pytest.fixture(scope="module")
def projected(counts, tmp_path_factory):
    """The folder, and the words with their counts."""
    folder = tmp_path_factory.mktemp("projected") / "logs"
    assert export_projector(CASE, None, counts, folder, max_words=20) == 20
    lines = counts.read_text(encoding="utf-8").splitlines()
    return folder, [line.split("\t") for line in lines[:20]]


def test_projector_files_contain_words_counts_and_vectors(projected):
    folder, words = projected
    header, *rows = (folder / "words.tsv").read_text(encoding="utf-8").splitlines()
    assert header == "word\tcount" and [row.split("\t") for row in rows] == words
    found = np.loadtxt(folder / "vectors.tsv", delimiter="\t")
    expected = WordVectors(load_bilm(CASE))([word for word, _ in words])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_projector_files_load_in_tensorboard(projected):
    if find_spec("tensorboard") is None:
        pytest.skip("needs the extra tensorboard: make test-clients")
    from tensorboard.plugins.base_plugin import TBContext
    from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
    from werkzeug.test import Client

    folder, words = projected
    plugin = ProjectorPlugin(TBContext(logdir=str(folder), multiplexer=None, data_provider=None))
    apps = plugin.get_plugin_apps()

    def get(route):
        return Client(apps[route]).get(f"{route}?run=.&name=words&num_rows=100")

    assert get("/runs").get_json() == ["."]
    (info,) = get("/info").get_json()["embeddings"]
    assert info["tensorName"] == "words"
    vectors = np.frombuffer(get("/tensor").data, np.float32).reshape(20, -1)
    np.testing.assert_allclose(
        vectors, np.loadtxt(folder / "vectors.tsv", delimiter="\t"), rtol=1e-5
    )
    assert [row.split("\t") for row in get("/metadata").text.splitlines()[1:]] == words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the\t5\nof\n", "counts.tsv, line 2: 'of'; expected a word, a tab and its count"),
        ("the 5\n", "line 1"),
        ("the\tmany\n", "line 1"),
        ("", "found no words"),
    ],
)
def test_projector_refuses_a_line_without_a_count(text, expected, tmp_path):
    (tmp_path / "counts.tsv").write_text(text)
    with pytest.raises(DataError, match=expected):
        export_projector(CASE, None, tmp_path / "counts.tsv", tmp_path / "logs")
    assert not (tmp_path / "logs").exists()


def test_projector_keeps_other_files(counts, tmp_path):
    path = tmp_path / "counts.tsv"
    path.write_bytes(counts.read_bytes())
    (tmp_path / "projector_config.pbtxt").touch()
    with pytest.raises(DataError, match=r"contains counts\.tsv in addition to projector_con"):
        export_projector(CASE, None, path, tmp_path, max_words=20)
    assert path.read_bytes() == counts.read_bytes()
