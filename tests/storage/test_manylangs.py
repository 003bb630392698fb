"""ELMoForManyLangs models against the numbers of the original program, in all that reads them."""

import shutil

import keras
import numpy as np
import pytest
from conftest import GOLDEN, golden_cases, others_slow
from golden_models import LIMIT, check_layers, expected_of, sentences_of

from bilm import BidirectionalLanguageModel, Elmo, export_saved_model
from bilm.data.alphabets import alphabet_of
from bilm.errors import OptionsError
from bilm.model import dump_token_embeddings

ON_TENSORFLOW = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="strings and SavedModel are TensorFlow's"
)
HAS_CASES = (GOLDEN / "manylangs").is_dir()
CASES = golden_cases("manylangs") if HAS_CASES else []
CASES.sort(key=lambda case: case.id != "word_and_char_legacy")


def side_by_side(vectors, folder):
    """Sentences out of a padded batch of all layers side by side, (B, T, layers * 2 P)."""
    n_layers, vectors = len(expected_of(folder)[0]), np.asarray(vectors)
    for row, words in zip(vectors, sentences_of(folder), strict=True):
        yield np.stack(np.split(row[: len(words)], n_layers, axis=-1))


def padded(sentences):
    longest = max(map(len, sentences))
    return [words + [""] * (longest - len(words)) for words in sentences]


@pytest.fixture(scope="module", params=others_slow(CASES))
def folder(request):
    return request.param


@pytest.fixture(scope="module")
def elmo(folder):
    return Elmo(folder, combine="concat")


def test_golden_manylangs_language_model(folder):
    model, sentences = BidirectionalLanguageModel(folder), sentences_of(folder)
    result = model(model.batcher().batch_sentences(sentences))
    assert result["lengths"].tolist() == [len(words) for words in sentences]
    rows = zip(result["lm_embeddings"], sentences, strict=True)
    check_layers([row[:, : len(words)] for row, words in rows], folder)


def test_golden_manylangs_elmo_on_characters(elmo, folder):
    ids = elmo.batcher().batch_sentences(sentences_of(folder)).astype("int32")
    check_layers(list(side_by_side(keras.ops.convert_to_numpy(elmo(ids)), folder)), folder)


@ON_TENSORFLOW
def test_golden_manylangs_elmo_spells_strings_as_the_batcher(elmo, folder):
    import tensorflow as tf

    from bilm.layers.tensorflow.spelling import spelled

    sentences = sentences_of(folder)
    words = ["e\u0301", "a\u00a0b", "\U0001f600" * 60, "<bow>", "<S>", "</S>", "\u3000", " "]
    words += [mark + "x" * n for mark in ("<bos>", "<eos>") for n in range(3)]
    tokens = tf.constant(padded([*sentences, words]))
    ids = elmo.batcher().batch_sentences([*sentences, words])
    np.testing.assert_array_equal(spelled(tokens, alphabet_of(elmo.options)), ids)
    check_layers(list(side_by_side(elmo(tokens[: len(sentences)]), folder)), folder)


def test_golden_manylangs_token_cache(folder, tmp_path):
    sentences = sentences_of(folder)
    words = dict.fromkeys(word for words in sentences for word in words)
    vocabulary, table = tmp_path / "vocab.txt", tmp_path / "table.hdf5"
    lines = [word for word in words if word == word.strip()]
    vocabulary.write_text("\n".join(["<S>", "</S>", "<UNK>", *lines]), encoding="utf-8")
    dump_token_embeddings(vocabulary, folder, None, table)
    how = {"use_character_inputs": False, "embedding_weight_file": table}
    model = BidirectionalLanguageModel(folder, **how)
    ids = model.batcher(vocabulary).batch_sentences(sentences)
    found, theirs = model(ids)["lm_embeddings"], expected_of(folder)
    for k, words in enumerate(sentences):
        if words and set(words) <= set(lines):
            np.testing.assert_allclose(found[k][:, : len(words)], theirs[k], atol=LIMIT)


@ON_TENSORFLOW
def test_golden_manylangs_saved_keras_models_contain_their_lexicons(folder, tmp_path):
    """Loaded without the model's own files."""
    import tensorflow as tf

    copy = shutil.copytree(folder, tmp_path / "model")
    elmo, tokens = Elmo(copy, combine="concat"), keras.Input((None,), dtype="string")
    keras.Model(tokens, elmo(tokens)).save(tmp_path / "saved.keras")
    shutil.rmtree(copy)
    loaded = keras.models.load_model(tmp_path / "saved.keras")
    vectors = loaded(tf.constant(padded(sentences_of(folder))))
    check_layers(list(side_by_side(vectors, folder)), folder)


@ON_TENSORFLOW
def test_saved_model_of_manylangs_is_refused(elmo, tmp_path):
    with pytest.raises(OptionsError, match="cannot contain the lexicons"):
        export_saved_model(elmo, tmp_path / "saved")
