"""TensorFlow strings -> the character ids that `Batcher` returns, inside a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from bilm.data.alphabets import (
    BOS_CHAR,
    BOW_CHAR,
    EOS_CHAR,
    EOW_CHAR,
    PAD_CHAR,
    Alphabet,
    ByteAlphabet,
)
from bilm.data.marks import BOS, EOS
from bilm.data.model_ids import shifted
from bilm.errors import BilmError, DataError

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
    require(tf.logical_not(tf.reduce_any(is_text)), DataError(TEXT_AS_WORD))
    return strings


def require(holds: Any, error: BilmError) -> None:
    """Raise the error, in a graph InvalidArgumentError when it runs, unless a tensor is true."""
    if not tf.executing_eagerly():
        tf.debugging.Assert(holds, [str(error)])
    elif not holds:
        raise error


def spelled(tokens: tf.Tensor, alphabet: Alphabet) -> tf.Tensor:
    """Return the ids of tokens, string (B, T) with `""` as padding: int32 (B, T + 2, C)."""
    if isinstance(alphabet, ByteAlphabet):
        return char_ids(tokens, alphabet.width)

    def rows_of(tokens: np.ndarray) -> np.ndarray:
        words = [token.decode("utf-8", "replace") for token in tokens.ravel()]
        return alphabet(words).reshape(*tokens.shape, alphabet.width)

    # Lexicons are looked up in Python, so a SavedModel cannot contain them.
    ids = tf.numpy_function(rows_of, [tokens], tf.int32, stateful=False)
    ids = tf.ensure_shape(ids, (*tokens.shape, alphabet.width))
    ids = tf.where(tf.equal(tokens, "")[..., None], 0, shifted(ids))
    return between_marks(ids, tokens, *shifted(alphabet([alphabet.begin, alphabet.end])))


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
