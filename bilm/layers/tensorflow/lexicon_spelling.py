"""Tokens as TensorFlow strings -> ids by lexicons, inside the graph: `LexiconAlphabet`'s twin."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bilm.data.alphabet import LexiconAlphabet
from bilm.layers.tensorflow.spelling import between_marks
from bilm.lexicon_options import BOW, EOW, OOV


class LexiconSpelling(tf.Module):
    """Spells tokens by the lexicons of an alphabet, which a SavedModel takes along.

    Bytes that are not UTF-8 are read as U+FFFD.
    """

    def __init__(self, alphabet: LexiconAlphabet):
        super().__init__()
        self._pad, self._n_points = alphabet.pad, alphabet.max_characters - 2
        self._begin, self._end = alphabet.begin, alphabet.end
        # What the marks of a sentence are spelled, (C,) each, ids shifted by one.
        self._begin_row, self._end_row = alphabet([alphabet.begin, alphabet.end]) + 1
        self._n_word_columns = alphabet.n_word_columns
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
        ids = tf.concat(columns, axis=1) + 1
        for mark, row in ((self._begin, self._begin_row), (self._end, self._end_row)):
            ids = tf.where(tf.equal(cut, mark)[:, None], row, ids)
        ids = tf.where(tf.equal(flat, "")[:, None], 0, ids)
        ids = tf.reshape(ids, (*tf.unstack(tf.shape(tokens)), len(self._begin_row)))
        return between_marks(ids, tokens, self._begin_row, self._end_row)

    def _spelled(self, points: tf.RaggedTensor) -> tf.Tensor:
        """Return rows of characters between marks, then padding: int32 (n, C)."""
        lengths = points.row_lengths()[:, None]
        shape = (None, self._n_points)
        letters = self._letters.lookup(tf.cast(points.to_tensor(0, shape), tf.int64))
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
