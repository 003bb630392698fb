"""TensorFlow strings -> the character ids that `Batcher` returns, inside a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.data.vocabulary import (
    BOS,
    BOS_CHAR,
    BOW_CHAR,
    EOS,
    EOS_CHAR,
    EOW_CHAR,
    PAD_CHAR,
    Alphabet,
    LexiconAlphabet,
    shifted,
)
from bilm.errors import DataError

# Unicode white space, as in `str.split`; tf.strings.split splits at ASCII white space only.
WHITE_SPACE = (
    r"[\x{9}-\x{d}\x{1c}-\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}"
    r"\x{205f}\x{3000}]"
)
TEXT_AS_WORD = (
    "a token contains several blanks, so it seems to be a whole text; pass texts as strings (B,), "
    "keras.Input((), dtype='string'), which are split at blanks, or one word per string (B, T)"
)


def split(sentences: tf.Tensor) -> tf.Tensor:
    """Split sentences string (B,) as `str.split` does, at any Unicode white space: (B, T)."""
    spaced = tf.strings.regex_replace(sentences, WHITE_SPACE, " ")
    return tf.strings.split(spaced).to_tensor("")


def tokens_of(strings: tf.Tensor) -> tf.Tensor:
    """Return strings (B, T) as they are, and split sentences (B,): (B, T), padded with `""`.

    Raises: DataError for other shapes and if a token contains several blanks; in a graph,
        `tf.errors.InvalidArgumentError` for the latter when the graph runs.
    """
    if isinstance(strings, tf.RaggedTensor) or len(strings.shape) not in (1, 2):
        raise DataError(
            f"strings have shape {strings.shape}, expected tokens (B, T) with '' as padding or "
            "sentences (B,)"
        )
    if len(strings.shape) == 1:
        return split(strings)
    is_text = tf.strings.regex_full_match(strings, r"(?s)\s*\S+\s+\S+\s+\S.*")
    if not tf.executing_eagerly():
        tf.debugging.Assert(tf.logical_not(tf.reduce_any(is_text)), [TEXT_AS_WORD])
    elif tf.reduce_any(is_text):
        raise DataError(TEXT_AS_WORD)
    return strings


def speller(alphabet: Alphabet) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return the function that converts tokens, string (B, T), to the ids of an alphabet, int32
    (B, T + 2, C)."""
    if isinstance(alphabet, LexiconAlphabet):
        return LexiconSpelling(alphabet)
    return partial(char_ids, max_characters=alphabet.width)


def char_ids(tokens: tf.Tensor, max_characters: int) -> tf.Tensor:
    """Return the characters of tokens, between the marks of a sentence.

    Args:
        tokens: string (B, T), with `""` as padding; `<S>` and `</S>` are read as the marks.
        max_characters: C; longer tokens are truncated, as in `UnicodeCharsVocabulary`.
    Returns: int32 (B, T + 2, C), ids shifted by one and 0 for padding.
    """
    n_bytes = max_characters - 2
    spelled = tf.cast(tf.io.decode_raw(tokens, tf.uint8, fixed_length=n_bytes), tf.int32)
    lengths = tf.minimum(tf.strings.length(tokens), n_bytes)
    for mark, letter in ((BOS, BOS_CHAR), (EOS, EOS_CHAR)):
        is_mark = tf.equal(tokens, mark)
        letters = tf.one_hot(0, n_bytes, letter, 0, dtype=tf.int32)
        spelled = tf.where(is_mark[..., None], letters, spelled)
        lengths = tf.where(is_mark, 1, lengths)
    ids = _frame(spelled, lengths, max_characters)
    ids = tf.where(tf.equal(tokens, "")[..., None], 0, shifted(ids))  # B, T, C

    marks = [_mark(letter, max_characters) for letter in (BOS_CHAR, EOS_CHAR)]
    return between_marks(ids, tokens, *marks)


def between_marks(ids: Any, tokens: Any, begin: Any, end: Any) -> Any:
    """Add the marks (C,) of a sentence to ids (B, T, C), which are 0 where the token is `""`."""
    n_tokens = tf.shape(tokens)[1]
    # The end mark follows the last token that is not padding.
    places = tf.range(1, n_tokens + 1) * tf.cast(tf.not_equal(tokens, ""), tf.int32)
    ends = tf.reduce_max(tf.pad(places, [[0, 0], [1, 0]]), axis=1) + 1  # B
    ids = tf.pad(ids, [[0, 0], [1, 1], [0, 0]])
    place = tf.range(n_tokens + 2)[None, :, None]
    ids = tf.where(place == 0, begin, ids)
    return tf.where(place == ends[:, None, None], end, ids)


def _frame(spelled, lengths, max_characters):
    """Add the marks of a word to its bytes: (..., C - 2), (...) -> (..., C)."""
    place = tf.range(max_characters)
    spelled = tf.pad(spelled, [[0, 0]] * (len(spelled.shape) - 1) + [[1, 1]])
    ids = tf.where(place <= lengths[..., None], spelled, PAD_CHAR)
    ids = tf.where(place == lengths[..., None] + 1, EOW_CHAR, ids)
    return tf.where(place == 0, BOW_CHAR, ids)


def _mark(letter: int, max_characters: int) -> Any:
    spelled = tf.one_hot(0, max_characters - 2, letter, 0, dtype=tf.int32)
    return shifted(_frame(spelled, tf.constant(1), max_characters))


class LexiconSpelling(tf.Module):
    """Spells tokens with the lexicons of an alphabet; a SavedModel includes its tables.

    Bytes that are not UTF-8 are read as U+FFFD.
    """

    def __init__(self, alphabet: LexiconAlphabet):
        super().__init__()
        self._pad, self._n_points = alphabet.pad, alphabet.max_characters - 2
        self._begin, self._end = alphabet.begin, alphabet.end
        # The ids of the marks of a sentence, (C,) each, shifted by one.
        self._begin_row, self._end_row = shifted(alphabet([alphabet.begin, alphabet.end]))
        words: Any = alphabet.words
        characters: Any = alphabet.characters
        self._words: tf.lookup.StaticHashTable | None = None
        self._letters: tf.lookup.StaticHashTable | None = None
        with tf.init_scope():  # a table that is created inside a graph cannot be used outside it
            if words is not None:
                self._words = _table(words, words[alphabet.oov])
            if characters is not None:
                points = {ord(c): i for c, i in characters.items() if len(c) == 1}
                self._letters = _table(points, characters[alphabet.oov])
                self._bow, self._eow = characters[alphabet.bow], characters[alphabet.eow]

    def __call__(self, tokens: tf.Tensor) -> tf.Tensor:
        """Return the ids of tokens string (B, T), with `""` as padding: int32 (B, T + 2, C)."""
        flat = tf.reshape(tokens, (-1,))
        points = tf.strings.unicode_decode(flat, "UTF-8")[:, : self._n_points]
        cut = tf.strings.unicode_encode(points, "UTF-8")
        columns = []
        if self._words is not None:
            columns.append(self._words.lookup(cut)[:, None])
        if self._letters is not None:
            columns.append(self._spelled(points, self._letters))
        ids = shifted(tf.concat(columns, axis=1))
        for mark, row in ((self._begin, self._begin_row), (self._end, self._end_row)):
            ids = tf.where(tf.equal(cut, mark)[:, None], row, ids)
        ids = tf.where(tf.equal(flat, "")[:, None], 0, ids)
        ids = tf.reshape(ids, (*tf.unstack(tf.shape(tokens)), len(self._begin_row)))
        return between_marks(ids, tokens, self._begin_row, self._end_row)

    def _spelled(self, points: tf.RaggedTensor, table: tf.lookup.StaticHashTable) -> tf.Tensor:
        """Return each token's characters between word marks, followed by padding: int32 (n, C).

        `<eow>` is the first mark and `<bow>` the last, because ELMoForManyLangs swapped them during
        training: see `LexiconAlphabet`.
        """
        lengths = points.row_lengths()[:, None]
        shape = (None, self._n_points)
        letters = table.lookup(tf.cast(points.to_tensor(0, shape=shape), tf.int64))
        letters = tf.pad(letters, [[0, 0], [1, 1]])
        place = tf.range(self._n_points + 2, dtype=lengths.dtype)[None]
        ids = tf.where(place <= lengths, letters, self._pad)
        ids = tf.where(place == lengths + 1, self._bow, ids)
        return tf.where(place == 0, self._eow, ids)


def _table(lexicon: Mapping, otherwise: int) -> tf.lookup.StaticHashTable:
    keys, ids = list(lexicon), np.fromiter(lexicon.values(), np.int32, len(lexicon))
    keys = np.array(keys, np.int64) if isinstance(keys[0], int) else tf.constant(keys)
    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(keys, tf.constant(ids)), otherwise
    )
