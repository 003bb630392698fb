import json

import h5py
import numpy as np
import pytest
from conftest import golden_cases

from bilm.data.model_ids import Batcher, TokenBatcher
from bilm.errors import DataError

CASES = golden_cases("inference")


@pytest.fixture
def vocab_file(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("<S>\n</S>\n<UNK>\na\nb\n")
    return path


def load(folder, expected, key):
    batches = json.loads((folder / "batches.json").read_text())
    with h5py.File(folder / expected) as file:
        return [(batch, file[f"batch_{i}/{key}"][()]) for i, batch in enumerate(batches)]


@pytest.mark.parametrize("folder", CASES)
def test_golden_characters(folder):
    options = json.loads((folder / "options.json").read_text())
    width = options["char_cnn"]["max_characters_per_token"]
    for vocab_file in (folder / "vocab.txt", None):
        batcher = Batcher(vocab_file, width)
        for sentences, expected in load(folder, "expected.hdf5", "char_ids"):
            ids = batcher.batch_sentences(sentences)
            assert ids.dtype == expected.dtype
            np.testing.assert_array_equal(ids, expected)


@pytest.mark.parametrize(
    "folder", [c for c in CASES if (c.values[0] / "expected_tokens.hdf5").exists()]
)
def test_golden_tokens(folder):
    batcher = TokenBatcher(folder / "vocab.txt")
    for sentences, expected in load(folder, "expected_tokens.hdf5", "token_ids"):
        ids = batcher.batch_sentences(sentences)
        assert ids.dtype == expected.dtype
        np.testing.assert_array_equal(ids, expected)


def test_ids_are_shifted_by_one_and_padding_is_zero(vocab_file):
    ids = TokenBatcher(vocab_file).batch_sentences([["a", "x"], ["b"], []])
    assert ids.tolist() == [[1, 4, 3, 2], [1, 5, 2, 0], [1, 2, 0, 0]]
    chars = Batcher(None, 4).batch_sentences([["a", "x"], []])
    assert chars[0, 1].tolist() == [259, ord("a") + 1, 260, 261]
    assert (chars == 0).all(axis=2).tolist() == [[False] * 4, [False, False, True, True]]


def test_an_empty_batch_has_two_columns(vocab_file):
    assert Batcher(None, 50).batch_sentences([]).shape == (0, 2, 50)
    assert TokenBatcher(vocab_file).batch_sentences([]).shape == (0, 2)


def test_token_batcher_needs_unk_only_for_unknown_words(tmp_path):
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\na\nb\n")
    batcher = TokenBatcher(tmp_path / "vocab.txt")
    assert batcher.batch_sentences([["a", "b"], []]).tolist() == [[1, 3, 4, 2], [1, 2, 0, 0]]
    with pytest.raises(DataError, match=r"vocab\.txt: contains neither 'x' nor <UNK>"):
        batcher.batch_sentences([["a"], ["a", "x"]])
    (tmp_path / "vocab.txt").write_text("<S>\na\n<UNK>\n")
    with pytest.raises(DataError, match=r"</S> missing"):
        TokenBatcher(tmp_path / "vocab.txt")
