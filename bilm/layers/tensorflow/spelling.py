"""Tokens as TensorFlow strings -> ids, inside the graph, as `Batcher` gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.data.alphabet import Alphabet, LexiconAlphabet
from bilm.data.batcher import shifted
from bilm.data.characters import BOS, BOS_CHAR, BOW_CHAR, EOS, EOS_CHAR, EOW_CHAR, PAD_CHAR
from bilm.lexicon_options import BOW, EOW, OOV


def speller(alphabet: Alphabet) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return the function that spells string (B, T) as an alphabet does, int32 (B, T + 2, C)."""
    if isinstance(alphabet, LexiconAlphabet):
        return LexiconSpelling(alphabet)
    return partial(char_ids, max_characters=alphabet.width)


def char_ids(tokens: tf.Tensor, max_characters: int) -> tf.Tensor:
    """Spell tokens out between the marks of a sentence.

    Args:
        tokens: string (B, T), `""` being padding; `<S>` and `</S>` stand for the marks.
        max_characters: C; a longer token is cut, as in `UnicodeCharsVocabulary`.
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
    """Put a sentence's marks (C,) around ids (B, T, C), 0 where the token is `""`."""
    n_tokens = tf.shape(tokens)[1]
    # The end mark follows the last token that is no padding.
    places = tf.range(1, n_tokens + 1) * tf.cast(tf.not_equal(tokens, ""), tf.int32)
    ends = tf.reduce_max(tf.pad(places, [[0, 0], [1, 0]]), axis=1) + 1  # B
    ids = tf.pad(ids, [[0, 0], [1, 1], [0, 0]])
    place = tf.range(n_tokens + 2)[None, :, None]
    ids = tf.where(place == 0, begin, ids)
    return tf.where(place == ends[:, None, None], end, ids)


def _frame(spelled, lengths, max_characters):
    """Put bytes between the marks of a word: (..., C - 2), (...) -> (..., C)."""
    place = tf.range(max_characters)
    spelled = tf.pad(spelled, [[0, 0]] * (len(spelled.shape) - 1) + [[1, 1]])
    ids = tf.where(place <= lengths[..., None], spelled, PAD_CHAR)
    ids = tf.where(place == lengths[..., None] + 1, EOW_CHAR, ids)
    return tf.where(place == 0, BOW_CHAR, ids)


def _mark(letter: int, max_characters: int) -> Any:
    spelled = tf.one_hot(0, max_characters - 2, letter, 0, dtype=tf.int32)
    return shifted(_frame(spelled, tf.constant(1), max_characters))


class LexiconSpelling(tf.Module):
    """Spells tokens by the lexicons of an alphabet, which a SavedModel takes along.

    Bytes that are not UTF-8 are read as U+FFFD.
    """

    def __init__(self, alphabet: LexiconAlphabet):
        super().__init__()
        self._pad, self._n_points = alphabet.pad, alphabet.max_characters - 2
        self._begin, self._end = alphabet.begin, alphabet.end
        # What the marks of a sentence are spelled, (C,) each, ids shifted by one.
        self._begin_row, self._end_row = shifted(alphabet([alphabet.begin, alphabet.end]))
        with tf.init_scope():  # a table made in a graph would live there alone
            self._words = alphabet.words and _table(alphabet.words, alphabet.words[OOV])
            self._letters = None
            if alphabet.characters is not None:
                points = {ord(c): i for c, i in alphabet.characters.items() if len(c) == 1}
                self._letters = _table(points, alphabet.characters[OOV])
                self._bow, self._eow = (alphabet.characters[mark] for mark in (BOW, EOW))

    def __call__(self, tokens: tf.Tensor) -> tf.Tensor:
        """Return the ids of tokens string (B, T), `""` being padding: int32 (B, T + 2, C)."""
        flat = tf.reshape(tokens, (-1,))
        points = tf.strings.unicode_decode(flat, "UTF-8")[:, : self._n_points]
        cut = tf.strings.unicode_encode(points, "UTF-8")
        columns = []
        if self._words is not None:
            columns.append(self._words.lookup(cut)[:, None])
        if self._letters is not None:
            columns.append(self._spelled(points))
        ids = shifted(tf.concat(columns, axis=1))
        for mark, row in ((self._begin, self._begin_row), (self._end, self._end_row)):
            ids = tf.where(tf.equal(cut, mark)[:, None], row, ids)
        ids = tf.where(tf.equal(flat, "")[:, None], 0, ids)
        ids = tf.reshape(ids, (*tf.unstack(tf.shape(tokens)), len(self._begin_row)))
        return between_marks(ids, tokens, self._begin_row, self._end_row)

    def _spelled(self, points: tf.RaggedTensor) -> tf.Tensor:
        """Return rows of characters between marks, then padding: int32 (n, C)."""
        lengths = points.row_lengths()[:, None]
        shape = (None, self._n_points)
        letters = self._letters.lookup(tf.cast(points.to_tensor(0, shape=shape), tf.int64))
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
