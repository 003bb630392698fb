"""A softmax whose rows are computed from the characters of words."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from bilm.data.vocabulary import PAD_CHAR
from bilm.data.windows import needed_characters
from bilm.language_model import BiLM

WORDS_AT_A_TIME = 1_024


class CharacterSoftmax:
    """Updates the softmax table of a model, which the full softmax reads.

    Words are computed in the order of their lengths, so that short ones need few characters.

    Args:
        model: a `BiLM` with `softmax_of_characters`.
        characters: characters of every word of the vocabulary, integer (V, C).
    """

    def __init__(self, model: BiLM, characters: np.ndarray):
        assert model.options.char_cnn is not None
        self.model, self.characters = model, characters
        lengths = (characters != PAD_CHAR).sum(axis=1)
        widest = max(width for width, _ in model.options.char_cnn.filters)
        self._order = np.argsort(lengths, kind="stable")
        self._needed = needed_characters(lengths, widest, characters.shape[1])
        signature = [tf.TensorSpec((WORDS_AT_A_TIME, None), tf.int64)]
        self._rows: Any = tf.function(model.word_rows, autograph=False, input_signature=signature)

    def update(self) -> None:
        """Compute all rows with the present weights of the model."""
        kernel = self.model.softmax.kernel
        table: np.ndarray = np.empty(kernel.shape, np.float32)
        for start in range(0, len(self._order), WORDS_AT_A_TIME):
            words = self._order[start : start + WORDS_AT_A_TIME]
            # The last words are repeated, so that all batches have the same size.
            padded: np.ndarray = np.resize(words, WORDS_AT_A_TIME)
            characters = self.characters[padded, : self._needed[words].max()]
            rows = self._rows(tf.constant(characters, tf.int64))
            table[words] = rows.numpy()[: len(words)]
        kernel.assign(table)
