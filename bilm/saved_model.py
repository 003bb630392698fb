"""`Elmo` as a SavedModel with the signatures that users of the old hub module know."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from bilm.elmo import Elmo


def _module(elmo: Elmo) -> tf.Module:
    """Return the two signatures over one `Elmo` layer, as attributes of a module.

    Both give, float32: `word_emb` (B, T, P), the tokens' vectors from their characters;
    `lstm_outputs1` and on, (B, T, 2 P), the layers above; `elmo` (B, T, 2 P), the layer's output;
    and `default` (B, 2 P), its mean over a sentence's tokens (0 for an empty one).

    The module knows the variables, but not the layer: TensorFlow would write each variable of a
    Keras layer twice and initialize one of the two, so that only Python could load them.
    """
    module = tf.Module()
    module.weights = [variable.value for variable in elmo.variables]
    module.speller = elmo.speller()  # its lexicons, where it has any, are saved too

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None), tf.string, name="tokens"),
            tf.TensorSpec((None,), tf.int32, name="sequence_len"),
        ]
    )
    def tokens(tokens, sequence_len):
        """Embed tokens string (B, T), of which each row has `sequence_len` (B,)."""
        there = tf.sequence_mask(sequence_len, tf.shape(tokens)[1])
        return _embed(elmo, tf.where(there, tokens, ""))

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="strings")])
    def default(strings):
        """Embed sentences string (B,), whose tokens stand between spaces."""
        return _embed(elmo, tf.strings.split(strings).to_tensor(""))

    module.tokens, module.default = tokens, default
    return module


def _embed(elmo: Elmo, tokens) -> dict[str, tf.Tensor]:
    layers, mask, vectors = elmo.layers_of(tokens)
    there = tf.cast(mask, tf.float32)[..., None]
    mixed = tf.cast(elmo.combined(layers, mask), tf.float32)
    outputs = {
        "word_emb": vectors * there,
        "elmo": mixed,
        "default": tf.math.divide_no_nan(
            tf.reduce_sum(mixed, axis=1), tf.reduce_sum(there, axis=1)
        ),
    }
    for j in range(1, layers.shape[1]):
        outputs[f"lstm_outputs{j}"] = layers[:, j] * there
    return outputs


def export_saved_model(elmo: Elmo, path: str | Path) -> None:
    """Write an `Elmo` layer as a SavedModel with the signatures `tokens` and `default`.

    It runs without bilm and Python: in TensorFlow Serving, C++, `saved_model_cli` and
    TensorFlow 1's loader.

    Args:
        elmo: the layer; its first representation is the one given.
        path: the folder to write; it need not exist.
    Raises: ValueError if the layer keeps state or reads words instead of strings; WeightsError
        if it has no weights yet.

    Example:
        module = tf.saved_model.load(path)
        module.signatures["default"](tf.constant(["the cat sat"]))["elmo"]
    """
    if elmo.stateful or elmo.options.reads_words:
        raise ValueError("a SavedModel holds a stateless Elmo that reads strings")
    if not elmo.built:
        elmo.build()
    elmo.require_weights()
    module = _module(elmo)
    signatures = {"tokens": module.tokens, "default": module.default}
    tf.saved_model.save(module, str(path), signatures=signatures)
