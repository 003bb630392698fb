"""The component `bilm` in spaCy's pipelines."""

import multiprocessing
import shutil
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from command_runs import output_of, printed_by
from stored_files import CASE

if find_spec("spacy") is None:
    pytest.skip("needs the extra spacy: make test-clients", allow_module_level=True)
import spacy

from bilm.errors import WeightsError
from bilm.integrations.spacy_pipe import set_hooks

pytestmark = [pytest.mark.clients, pytest.mark.short]

TEXTS = ["The bank closed.", "", "She  saw\nthe bank of the river.", " "]
MODEL = {"model": str(CASE)}


def pipeline(**config):
    nlp = spacy.blank("en")
    nlp.add_pipe("bilm", config=MODEL | config)
    return nlp


def assert_embedded(docs, embedder):
    for doc, text in zip(docs, TEXTS, strict=True):
        there = [not token.is_space for token in doc]
        words = [token.text for token in doc if not token.is_space]
        expected = embedder.embed_sentence(words, "average")
        assert doc.text == text and doc.tensor.dtype == np.float32
        assert doc.tensor.shape == (len(doc), embedder.dim)
        np.testing.assert_allclose(doc.tensor[there], expected, atol=1e-6)
        assert not doc.tensor[np.logical_not(there)].any()


def test_spacy_tensors_equal_the_embedder(stored_embedder):
    nlp = pipeline()
    assert_embedded([nlp(text) for text in TEXTS], stored_embedder)
    assert_embedded(nlp.pipe(TEXTS, batch_size=3), stored_embedder)


def test_spacy_without_the_component_imports_no_keras():
    """spaCy imports the entry points of all installed packages whenever it makes a pipeline."""
    program = (
        "import sys, spacy; nlp = spacy.blank('en'); nlp('The bank closed.');"
        "assert 'bilm.integrations.spacy_pipe' in sys.modules;"
        "print([name for name in ('keras', 'tensorflow') if name in sys.modules])"
    )
    assert output_of(program) == "[]\n"


def test_spacy_concatenates_layers(stored_embedder):
    doc = pipeline(layers=[0, 2])("The bank closed")
    expected = stored_embedder.embed_sentence(["The", "bank", "closed"], [0, 2])
    np.testing.assert_allclose(doc.tensor, np.concatenate(expected, axis=-1), atol=1e-6)


def test_spacy_embeds_each_sentence_separately(stored_embedder):
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("bilm", config=MODEL)
    doc = nlp("The bank closed. She saw the bank.")
    parts = [stored_embedder.embed_sentence([t.text for t in s], "average") for s in doc.sents]
    assert len(parts) == 2
    np.testing.assert_allclose(doc.tensor, np.concatenate(parts), atol=1e-6)


def test_spacy_vectors_and_similarities_use_the_tensor():
    nlp = pipeline()
    one, other = nlp("The bank closed"), nlp("She saw the bank")
    np.testing.assert_array_equal(one[1].vector, one.tensor[1])
    np.testing.assert_allclose(one.vector, one.tensor.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(one[1:3].vector, one.tensor[1:3].mean(axis=0), rtol=1e-6)
    assert one.has_vector and one[1].has_vector and one[1:].has_vector
    assert one.vector_norm == pytest.approx(np.linalg.norm(one.vector))
    assert one[1:3].vector_norm == pytest.approx(np.linalg.norm(one[1:3].vector))
    a, b = one.tensor[1], other.tensor[3]
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    assert one[1].similarity(other[3]) == pytest.approx(cosine, abs=1e-6) != 1
    assert one.similarity(one) == pytest.approx(1)
    assert not nlp("").vector.any() and nlp("").similarity(one) == 0


@pytest.mark.filterwarnings("ignore:.W109")  # stored documents lose their hooks
def test_spacy_vectors_are_those_of_the_component_whatever_later_ones_change():
    nlp = pipeline()
    expected = nlp("The bank closed early").tensor
    nlp.add_pipe("tok2vec")
    nlp.initialize()
    doc = nlp("The bank closed early")
    assert doc.tensor.shape != expected.shape
    np.testing.assert_allclose([token.vector for token in doc], expected, atol=1e-6)
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[1:3])
        retokenizer.split(doc[3], ["ear", "ly"], heads=[(doc[3], 1), doc[0]])
    stored = spacy.tokens.Doc(nlp.vocab).from_bytes(doc.to_bytes())
    set_hooks(stored)
    means = [expected[0], expected[1:3].mean(axis=0), expected[3], expected[3]]
    for changed in (doc, stored):
        np.testing.assert_allclose([token.vector for token in changed], means, atol=1e-6)


def test_spacy_ignores_the_table_of_word_vectors():
    nlp = pipeline()
    nlp.vocab.set_vector("bank", np.ones(5, np.float32))
    doc = nlp("The bank closed")
    np.testing.assert_array_equal(doc[1].vector, doc.tensor[1])


def test_spacy_stored_pipeline_contains_the_name_of_the_model(stored_model, tmp_path):
    nlp = pipeline(model=str(stored_model), layers="top")
    expected = nlp("The bank closed").tensor
    nlp.to_disk(tmp_path / "pipeline")
    assert (tmp_path / "pipeline" / "bilm").stat().st_size < 500
    from_bytes = spacy.blank("en").from_config(nlp.config).from_bytes(nlp.to_bytes())
    for loaded in (spacy.load(tmp_path / "pipeline"), from_bytes):
        np.testing.assert_array_equal(loaded("The bank closed").tensor, expected)
    program = "import spacy; print(spacy.load('pipeline')('The bank closed').tensor.tolist())"
    np.testing.assert_allclose(eval(output_of(program, cwd=tmp_path)), expected, atol=1e-6)


def test_spacy_stored_pipeline_refuses_another_model(stored_model, tmp_path):
    nlp = pipeline(model=str(stored_model))
    nlp.to_disk(tmp_path / "pipeline")
    moved = shutil.move(stored_model, tmp_path / "moved")
    with pytest.raises(WeightsError, match="neither a file or folder of this path nor"):
        spacy.load(tmp_path / "pipeline")
    elsewhere = {"components": {"bilm": {"model": str(moved)}}}
    spacy.load(tmp_path / "pipeline", config=elsewhere)
    with open(moved / "options.json", "a") as file:
        file.write("\n")
    with pytest.raises(WeightsError, match=r"the files have changed .* since the stored"):
        spacy.load(tmp_path / "pipeline", config=elsewhere)
    (tmp_path / "pipeline" / "bilm").write_text("{}")
    with pytest.raises(WeightsError, match="bilm: not a stored component"):
        spacy.load(tmp_path / "pipeline", config=elsewhere)


PROCESSES = """
import multiprocessing, sys
import numpy as np, spacy

if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    nlp = spacy.blank("en")
    nlp.add_pipe("bilm", config={"model": sys.argv[2]})
    if sys.argv[1] == "spawn":
        nlp("The model is loaded here too")
    docs = list(nlp.pipe(["The bank closed."] * 5 + [""], n_process=2, batch_size=2))
    np.save(sys.argv[3], np.stack([doc.tensor for doc in docs[:5]]))
    assert (docs[0][1].vector == docs[0].tensor[1]).all() and len(docs[5]) == 0
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_spacy_pipe_in_two_processes(start, tmp_path, stored_embedder):
    if start not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {start}")
    (tmp_path / "program.py").write_text(PROCESSES)
    printed_by([sys.executable, "program.py", start, CASE, "found.npy"], cwd=tmp_path)
    expected = stored_embedder.embed_sentence(["The", "bank", "closed", "."], "average")
    found = np.load(tmp_path / "found.npy")
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=1e-6)
