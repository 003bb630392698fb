import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilm.data import alphabets
from bilm.data.vocabulary import (
    BOS_CHAR,
    BOW_CHAR,
    EOS_CHAR,
    EOW_CHAR,
    PAD_CHAR,
    UnicodeCharsVocabulary,
    Vocabulary,
)
from bilm.errors import DataError

WORDS = ["the", "<UNK>", "café", "</S>", "of", "<S>"]


def write(tmp_path, *words):
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{word}\n" for word in words))
    return path


def spell(word, width):
    """The definition, one character at a time."""
    marks = {"<S>": [BOS_CHAR], "</S>": [EOS_CHAR]}
    row = [BOW_CHAR, *marks.get(word, word.encode()[: width - 2]), EOW_CHAR]
    return row + [PAD_CHAR] * (width - len(row))


def test_vocabulary_ids_are_line_numbers(tmp_path):
    vocab = Vocabulary(write(tmp_path, *WORDS), validate_file=True)
    assert (vocab.size, vocab.bos, vocab.eos, vocab.unk) == (6, 5, 3, 1)
    assert [vocab.word_to_id(word) for word in WORDS] == list(range(6))
    assert vocab.words == [vocab.id_to_word(i) for i in range(6)] == WORDS
    assert vocab.word_to_id("unheard") == vocab.unk
    assert vocab.decode(np.array([0, 2, 1])) == "the café <UNK>"


def test_vocabulary_encode_and_decode(tmp_path):
    vocab = Vocabulary(write(tmp_path, *WORDS))
    ids = vocab.encode("the unheard <S>")
    assert ids.dtype == np.int32
    assert ids.tolist() == [5, 0, 1, 5, 3]
    assert vocab.encode(["of", "the"], split=False).tolist() == [5, 4, 0, 3]
    # The words come in reverse order already, as from bilm-tf's reader.
    assert vocab.encode("of the", reverse=True).tolist() == [3, 4, 0, 5]
    assert vocab.encode("").tolist() == [5, 3]


def test_blank_lines_have_ids_and_maxtermid_has_none(tmp_path):
    vocab = Vocabulary(write(tmp_path, "!!!MAXTERMID", " a ", "", "b"))
    assert vocab.words == ["a", "", "b"]
    assert vocab.word_to_id("b") == 2


@pytest.mark.parametrize("words", [["!!!MAXTERMID", "a", "", "b"], ["b", "a", "b"]])
def test_lines_without_a_word_of_their_own_give_one_warning(tmp_path, caplog, words):
    for _ in range(2):
        Vocabulary(write(tmp_path, *words))
    assert caplog.text.count("1 lines are blank or repeat a word, such as") == 1


def test_vocabulary_without_marks(tmp_path):
    path = write(tmp_path, "a", "<S>", "b", "a")
    vocab = Vocabulary(path)
    assert (vocab.bos, vocab.eos, vocab.unk, vocab.word_to_id("x")) == (1, -1, -1, -1)
    assert vocab.word_to_id("a") == 3  # the last, as in bilm-tf
    with pytest.raises(DataError, match=r"vocab.txt: </S> <UNK> missing"):
        Vocabulary(path, validate_file=True)


def test_vocabulary_errors_name_file_and_line(tmp_path):
    with pytest.raises(DataError, match=r"none.txt: cannot be read"):
        Vocabulary(tmp_path / "none.txt")
    with pytest.raises(DataError, match=r"vocab.txt: empty"):
        Vocabulary(write(tmp_path))
    with pytest.raises(DataError, match=r"vocab.txt: 'of' is on 2 lines"):
        Vocabulary(write(tmp_path, *WORDS, "a", "of"), validate_file=True)
    vocab = Vocabulary(write(tmp_path, *WORDS))
    for bad in (-1, 6):
        with pytest.raises(DataError, match=f"the id {bad} is out of range"):
            vocab.decode([bad])
    with pytest.raises(DataError, match="max_word_length is 2, expected at least 3"):
        UnicodeCharsVocabulary(write(tmp_path, *WORDS), 2)
    for start, problem in {"version https://git-lfs": "a Git LFS", "\n<html>": "an HTML"}.items():
        with pytest.raises(DataError, match=f"vocab.txt: {problem} .* instead of the file"):
            Vocabulary(write(tmp_path, start))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))), st.integers(3, 12))
def test_characters_match_their_definition(tmp_path_factory, words, width):
    vocab = UnicodeCharsVocabulary(write(tmp_path_factory.mktemp("v"), *WORDS), width)
    chars = vocab.encode_chars(words, split=False)
    assert chars.dtype == np.int32
    assert chars.tolist() == [spell(word, width) for word in ("<S>", *words, "</S>")]
    for word in words:
        assert vocab.word_to_char_ids(word).tolist() == spell(word, width)


def test_unicode_vocabulary_char_ids_match_the_definition(tmp_path):
    vocab = UnicodeCharsVocabulary(write(tmp_path, *WORDS), 7, validate_file=True)
    assert vocab.word_char_ids.dtype == np.int32
    assert vocab.word_char_ids.tolist() == [spell(word, 7) for word in WORDS]
    assert vocab.bos_chars.tolist() == vocab.word_to_char_ids("<S>").tolist()
    expected = vocab.encode_chars("</S> of the <S>")[1:-1]
    np.testing.assert_array_equal(vocab.encode_chars("of the", reverse=True), expected)


def test_character_cache_is_bounded_and_results_are_writable(tmp_path, monkeypatch):
    monkeypatch.setattr(alphabets, "MAX_CACHED_WORDS", 4)
    vocab = UnicodeCharsVocabulary(write(tmp_path, *WORDS), 6)
    words = [f"w{i}" for i in range(50)]
    chars = vocab.encode_chars(words, split=False)
    assert len(vocab.spell._rows) <= 4
    chars[:] = 0  # writes to a copy, not to the cache
    assert vocab.encode_chars(words, split=False)[1:-1].tolist() == [spell(w, 6) for w in words]
