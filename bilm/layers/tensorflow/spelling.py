"""Tokens as TensorFlow strings -> character ids, inside the graph, as `Batcher` gives them."""

from __future__ import annotations

import tensorflow as tf

from bilm.data.batcher import shifted
from bilm.data.characters import BOS, BOS_CHAR, BOW_CHAR, EOS, EOS_CHAR, EOW_CHAR, PAD_CHAR


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

    n_tokens = tf.shape(tokens)[1]
    # The end mark follows the last token that is no padding.
    places = tf.range(1, n_tokens + 1) * tf.cast(tf.not_equal(tokens, ""), tf.int32)
    ends = tf.reduce_max(tf.pad(places, [[0, 0], [1, 0]]), axis=1) + 1  # B
    ids = tf.pad(ids, [[0, 0], [1, 1], [0, 0]])
    place = tf.range(n_tokens + 2)[None, :, None]
    ids = tf.where(place == 0, _mark(BOS_CHAR, max_characters), ids)
    return tf.where(place == ends[:, None, None], _mark(EOS_CHAR, max_characters), ids)


def _frame(spelled, lengths, max_characters):
    """Put bytes between the marks of a word: (..., C - 2), (...) -> (..., C)."""
    place = tf.range(max_characters)
    spelled = tf.pad(spelled, [[0, 0]] * (len(spelled.shape) - 1) + [[1, 1]])
    ids = tf.where(place <= lengths[..., None], spelled, PAD_CHAR)
    ids = tf.where(place == lengths[..., None] + 1, EOW_CHAR, ids)
    return tf.where(place == 0, BOW_CHAR, ids)


def _mark(letter: int, max_characters: int):
    spelled = tf.one_hot(0, max_characters - 2, letter, 0, dtype=tf.int32)
    return shifted(_frame(spelled, tf.constant(1), max_characters))
