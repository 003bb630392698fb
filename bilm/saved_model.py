"""`Elmo` as a SavedModel with the signatures that users of the old hub module know."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from bilm.elmo import Elmo


class ElmoModule(tf.Module):
    """The two signatures over one `Elmo` layer.

    Both give, float32: `word_emb` (B, T, P), the tokens' vectors from their characters;
    `lstm_outputs1` and on, (B, T, 2 P), the layers above; `elmo` (B, T, 2 P), the layer's output;
    and `default` (B, 2 P), its mean over a sentence's tokens (0 for an empty one).
    """

    def __init__(self, elmo: Elmo):
        super().__init__()
        self.elmo = elmo

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None), tf.string, name="tokens"),
            tf.TensorSpec((None,), tf.int32, name="sequence_len"),
        ]
    )
    def tokens(self, tokens, sequence_len):
        """Embed tokens string (B, T), of which each row has `sequence_len` (B,)."""
        there = tf.sequence_mask(sequence_len, tf.shape(tokens)[1])
        return self._embed(tf.where(there, tokens, ""))

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="strings")])
    def default(self, strings):
        """Embed sentences string (B,), whose tokens stand between spaces."""
        return self._embed(tf.strings.split(strings).to_tensor(""))

    def _embed(self, tokens):
        layers, mask, vectors = self.elmo.layers_of(tokens)
        there = tf.cast(mask, tf.float32)[..., None]
        elmo = tf.cast(self.elmo.combined(layers, mask), tf.float32)
        n_tokens = tf.reduce_sum(there, axis=1)
        outputs = {
            "word_emb": vectors * there,
            "elmo": elmo,
            "default": tf.math.divide_no_nan(tf.reduce_sum(elmo, axis=1), n_tokens),
        }
        for j in range(1, layers.shape[1]):
            outputs[f"lstm_outputs{j}"] = layers[:, j] * there
        return outputs


def export_saved_model(elmo: Elmo, path: str | Path) -> None:
    """Write an `Elmo` layer as a SavedModel with the signatures `tokens` and `default`.

    Args:
        elmo: the layer; its first representation is the one given.
        path: the folder to write; it need not exist.
    Raises: ValueError if the layer keeps state or reads words instead of strings.

    Example:
        module = tf.saved_model.load(path)
        module.signatures["default"](tf.constant(["the cat sat"]))["elmo"]
    """
    if elmo.stateful or elmo.options.char_cnn is None:
        raise ValueError("a SavedModel holds a stateless Elmo that reads strings")
    if not elmo.built:
        elmo.build()
    module = ElmoModule(elmo)
    signatures = {"tokens": module.tokens, "default": module.default}
    tf.saved_model.save(module, str(path), signatures=signatures)
