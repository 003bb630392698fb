"""A word has the same vector by every way in: blanks inside it, and normal forms, are its own."""

import json

import keras
import numpy as np
import pytest

import bilm
from bilm.data.readers import Corpus, Reading

BLANKS = "\u00a0\u1680\u2000\u2009\u200a\u202f\u205f\u3000\x1c\x85\u2028"
WORDS = [
    *(f"10{blank}000" for blank in (" ", *BLANKS)),
    "caf\u00e9", "cafe\u0301", "\u212b", "\u00c5", "A\u030a", "\ufb01nd", "find", "\u00bd",
    "\uac00", "\u1100\u1161", "zero\u200bwidth", "\u00adsoft", "\u200fright", "\ufeffmark",
]  # fmt: skip
SENTENCES = [["the", *WORDS[:7], "."], WORDS[7:], ["end"]]
MODEL = "novels-en"


def by_embedder(folder):
    return bilm.ElmoEmbedder(MODEL).embed_batch(SENTENCES, "top")


def by_numpy(folder):
    return bilm.ElmoEmbedder(MODEL, backend="numpy").embed_batch(SENTENCES, "top")


def lists(folder):
    """Write the sentences as lists of words of a table."""
    path = folder / "words.jsonl"
    path.write_text("".join(json.dumps({"words": words}) + "\n" for words in SENTENCES))
    return path


def by_file(folder):
    out = folder / "vectors.hdf5"
    how = {"layers": "top", "column": "words", "backend": "numpy"}
    bilm.dump_bilm_embeddings(None, lists(folder), MODEL, None, out, **how)
    _, words, vectors = zip(*bilm.read_embeddings(out), strict=True)
    assert list(words) == SENTENCES
    return vectors


def by_usages(folder):
    pytest.importorskip("pyarrow")
    pytest.importorskip("pandas")
    from bilm.studies.usages import collect_usages

    texts = {"text": lists(folder)}
    usages = collect_usages(MODEL, ["all: /(?s:.)+/"], texts, column="words")
    places = usages.frame.sort_values(["line", "position"]).index
    vectors = usages.vectors()[places]
    return np.split(vectors, np.cumsum([len(words) for words in SENTENCES])[:-1])


def by_layer_of_strings(folder):
    import tensorflow as tf

    strings = tf.ragged.constant(SENTENCES).to_tensor("")
    return of_rows(bilm.Elmo(MODEL, combine="top")(strings))


def by_layer_of_ids(folder):
    layer = bilm.Elmo(MODEL, combine="top")
    return of_rows(layer(layer.batcher().batch_sentences(SENTENCES)))


def of_rows(vectors):
    rows = keras.ops.convert_to_numpy(vectors)
    return [row[: len(words)] for row, words in zip(rows, SENTENCES, strict=True)]


def by_spacy(folder):
    spacy = pytest.importorskip("spacy")
    nlp = spacy.blank("en")
    nlp.add_pipe("bilm", config={"model": MODEL, "layers": "top"})
    docs = [nlp(spacy.tokens.Doc(nlp.vocab, words)) for words in SENTENCES]
    return [np.stack([token.vector for token in doc]) for doc in docs]


tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="reads strings")
clients = [pytest.mark.clients, pytest.mark.short]
WAYS = [
    by_numpy, by_file, by_layer_of_ids,
    pytest.param(by_layer_of_strings, marks=tensorflow),
    pytest.param(by_usages, marks=clients), pytest.param(by_spacy, marks=clients),
]  # fmt: skip


@pytest.fixture(scope="module")
def expected():
    return by_embedder(None)


@pytest.mark.parametrize("way", WAYS)
def test_words_have_the_same_vectors_by_every_way(way, expected, tmp_path):
    found = way(tmp_path)
    for words, a, b in zip(SENTENCES, found, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, atol=1e-5, err_msg=str(words))
    flat = np.concatenate(expected)
    assert len(np.unique(flat.round(4), axis=0)) == len(flat)  # and different words have others


def test_words_have_the_same_scores_by_every_way(tmp_path):
    records = Corpus(lists(tmp_path), Reading(column="words"))
    of_file = bilm.score((record.words for record in records), MODEL, backend="numpy")
    for a, b in zip(of_file, bilm.score(SENTENCES, MODEL), strict=True):
        assert a.tokens == b.tokens
        np.testing.assert_allclose(a.forward, b.forward, atol=1e-4)


@tensorflow
def test_lines_are_split_at_the_same_blanks(tmp_path):
    import tensorflow as tf

    from bilm.layers.tensorflow.spelling import tokens_of

    line = "".join(f"w{k}{blank}" for k, blank in enumerate((" ", "\t", *BLANKS))) + "end"
    (tmp_path / "text.txt").write_text(line + "\n")
    (record,) = Corpus(tmp_path / "text.txt")
    (tokens,) = tokens_of(tf.constant([line])).numpy().tolist()
    assert record.words == line.split() == [token.decode() for token in tokens]
    assert len(tokens) == len(BLANKS) + 3
