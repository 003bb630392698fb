"""TensorFlow strings -> the character ids that `Batcher` returns, inside a graph."""

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
from bilm.errors import DataError
from bilm.layers.functional import require, with_marks

# Unicode white space, as in `str.split`; tf.strings.split splits at ASCII white space only.
WHITE_SPACE = (
    r"[\x{9}-\x{d}\x{1c}-\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}"
    r"\x{205f}\x{3000}]"
)
TEXT_AS_WORD = (
    "a token contains several blanks, so it seems to be a whole text; pass texts as strings (B,), "
    "keras.Input((), dtype='string'), which are split at blanks, or one word per string (B, T)"
)


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
    spaced = tf.strings.regex_replace(strings, WHITE_SPACE, " ")
    if len(strings.shape) == 1:
        return tf.strings.split(spaced).to_tensor("")
    is_text = tf.strings.regex_full_match(spaced, r"(?s)\s*\S+\s+\S+\s+\S.*")
    require(tf.logical_not(tf.reduce_any(is_text)), DataError(TEXT_AS_WORD))
    return strings


def spelled(tokens: tf.Tensor, alphabet: Alphabet) -> tf.Tensor:
    """Return the ids of tokens, string (B, T) with `""` as padding, between the marks of a
    sentence: int32 (B, T + 2, C), shifted by one and 0 for padding."""
    if isinstance(alphabet, ByteAlphabet):
        ids = _byte_ids(tokens, alphabet.width)
    else:

        def rows_of(tokens: np.ndarray) -> np.ndarray:
            words = [token.decode("utf-8", "replace") for token in tokens.ravel()]
            return alphabet(words).reshape(*tokens.shape, alphabet.width)

        # Lexicons are looked up in Python, so a SavedModel cannot contain them.
        ids = tf.numpy_function(rows_of, [tokens], tf.int32, stateful=False)
        ids = tf.ensure_shape(ids, (*tokens.shape, alphabet.width))

    is_word = tf.not_equal(tokens, "")
    ids = tf.where(is_word[..., None], shifted(ids), 0)
    ids = tf.pad(ids, [[0, 0], [1, 1], [0, 0]])

    is_mark = tf.not_equal(with_marks(is_word), tf.pad(is_word, [[0, 0], [1, 1]]))  # B, T + 2
    begin, end = shifted(alphabet([alphabet.begin, alphabet.end]))  # C each
    place = tf.range(tf.shape(tokens)[1] + 2)[:, None]
    return tf.where(is_mark[..., None], tf.where(place == 0, begin, end), ids)


def _byte_ids(tokens: tf.Tensor, width: int) -> tf.Tensor:
    """Return the bytes of tokens between the marks of a word: string (B, T) -> int32 (B, T, C).
    `<S>` and `</S>` are one character each."""
    n_bytes = width - 2
    letters = tf.cast(tf.io.decode_raw(tokens, tf.uint8, fixed_length=n_bytes), tf.int32)
    lengths = tf.minimum(tf.strings.length(tokens), n_bytes)[..., None]  # B, T, 1
    for mark, letter in ((BOS, BOS_CHAR), (EOS, EOS_CHAR)):
        is_mark = tf.equal(tokens, mark)[..., None]
        letters = tf.where(is_mark, tf.one_hot(0, n_bytes, letter, 0, dtype=tf.int32), letters)
        lengths = tf.where(is_mark, 1, lengths)

    place = tf.range(width)
    ids = tf.pad(letters, [[0, 0], [0, 0], [1, 1]])  # B, T, C
    ids = tf.where(place <= lengths, ids, PAD_CHAR)
    ids = tf.where(place == lengths + 1, EOW_CHAR, ids)
    return tf.where(place == 0, BOW_CHAR, ids)
