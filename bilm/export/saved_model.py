"""Export of `Elmo` as a SavedModel, which runs without bilm and without Python."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from bilm.elmo.layer import Elmo
from bilm.errors import OptionsError
from bilm.support.files import new_folder

Outputs = dict[str, tf.Tensor]


def export_saved_model(elmo: Elmo, path: str | Path) -> None:
    """Write an `Elmo` layer as a SavedModel with three signatures, all with float32 outputs.

    It runs without bilm and Python: in TensorFlow Serving, C++, `saved_model_cli` and the loader of
    TensorFlow 1.

    - `serving_default` reads `sentences` string (B,) and returns `mean` (B, 2 P), the mean of the
      output of the layer over the tokens of a sentence; `layers` (B, layers + 1, T, 2 P) of the
      biLM; and `n_tokens` int32 (B,).
    - `tokens` and `default` are the signatures of the old hub module. `tokens` reads `tokens`
      string (B, T) and `sequence_len` int32 (B,), `default` reads `strings` (B,). Both return
      `word_emb` (B, T, P), the vectors of the tokens from their characters; `lstm_outputs1`, ...,
      (B, T, 2 P), the layers above; `elmo` (B, T, 2 P), the output of the layer; and `default`
      (B, 2 P), its mean.

    In `tokens`, `""` is padding. Values at padding, and means of sentences without tokens, are 0.

    Args:
        elmo: the layer; its first representation is exported.
        path: the folder to write, replaced if it contains a SavedModel. TensorFlow Serving requires
            a number as its name.
    Raises: OptionsError if the layer is stateful or its model reads words or lexicons; WeightsError
        if its weights are damaged; DataError if the folder contains other files; OSError if it
        cannot be written.
    """
    require_strings(elmo, "a SavedModel")
    if elmo.options.lexicon_encoder is not None:
        raise OptionsError(
            "a SavedModel cannot contain the lexicons of ELMoForManyLangs; export the model to "
            "ONNX, which reads the ids of its batcher()"
        )
    module = _module(elmo)
    signatures = {name: getattr(module, name) for name in ("serving_default", "tokens", "default")}
    with new_folder(path) as folder:
        tf.saved_model.save(module, str(folder), signatures)


def require_strings(elmo: Elmo, form: str) -> None:
    """Check that a layer can be exported for reading strings; build it.

    Raises: OptionsError, WeightsError.
    """
    if elmo.stateful:
        raise OptionsError(f"{form} requires a stateless Elmo; this one has stateful=True")
    if elmo.options.reads_words:
        raise OptionsError(
            f"{form} requires a model that reads characters; this model reads words, whose "
            "vocabulary cannot be exported"
        )
    if not elmo.built:
        elmo.build()


class Embedded(NamedTuple):
    """What an `Elmo` layer computes for tokens, as float32."""

    layers: tf.Tensor  # B, layers + 1, T, 2 P: of the biLM
    is_token: tf.Tensor  # B, T, 1: 0 at padding, else 1
    vectors: tf.Tensor  # B, T, P: of the tokens, from their characters
    mixed: tf.Tensor  # B, T, 2 P: output of the layer, 0 at padding
    mean: tf.Tensor  # B, 2 P: mean of the output over the tokens; 0 without tokens


def _embed(elmo: Elmo, tokens: tf.Tensor) -> Embedded:
    layers, mask, vectors = elmo.layers_of(tokens)
    is_token = tf.cast(mask, tf.float32)[..., None]  # B, T, 1
    mixed = tf.cast(elmo.combined(layers, mask), tf.float32)
    n_tokens = tf.reduce_sum(is_token, axis=1)  # B, 1
    mean = tf.math.divide_no_nan(tf.reduce_sum(mixed, axis=1), n_tokens)
    return Embedded(layers, is_token, vectors, mixed, mean)


def hub_outputs(elmo: Elmo, tokens: tf.Tensor, lengths: tf.Tensor | None = None) -> Outputs:
    """Return the outputs of `tokens`; `lengths` is its `sequence_len`, or None for all tokens."""
    if lengths is not None:
        is_inside = tf.sequence_mask(lengths, tf.shape(tokens)[1])  # B, T
        tokens = tf.where(is_inside, tokens, "")
    result = _embed(elmo, tokens)
    outputs = {"word_emb": result.vectors * result.is_token}
    for number in range(1, result.layers.shape[1]):
        outputs[f"lstm_outputs{number}"] = result.layers[:, number] * result.is_token
    return {**outputs, "elmo": result.mixed, "default": result.mean}


def serving_outputs(elmo: Elmo, tokens: tf.Tensor) -> Outputs:
    """Return the outputs of the signature `serving_default` for inputs of the layer."""
    result = _embed(elmo, tokens)
    n_tokens = tf.reduce_sum(result.is_token, axis=(1, 2))  # B
    return {
        "mean": result.mean,
        "layers": result.layers * result.is_token[:, None],
        "n_tokens": tf.cast(n_tokens, tf.int32),
    }


def _module(elmo: Elmo) -> tf.Module:
    """Return a module whose attributes are the signatures of an `Elmo` layer.

    The module refers to the variables and not to the layer: TensorFlow would write each variable of
    a Keras layer twice and initialize only one copy, so only Python could load them.
    """
    module = tf.Module()
    module.weights = [variable.value for variable in elmo.variables]
    lengths = tf.TensorSpec((None,), tf.int32, name="sequence_len")

    @tf.function(input_signature=[tf.TensorSpec((None, None), tf.string, name="tokens"), lengths])
    def tokens(tokens: tf.Tensor, sequence_len: tf.Tensor) -> Outputs:
        """Embed tokens string (B, T), the first `sequence_len` (B,) of each row."""
        return hub_outputs(elmo, tokens, sequence_len)

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="strings")])
    def default(strings: tf.Tensor) -> Outputs:
        """Embed sentences string (B,), split at white space."""
        return hub_outputs(elmo, strings)

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="sentences")])
    def serving_default(sentences: tf.Tensor) -> Outputs:
        """Embed sentences string (B,), split at white space."""
        return serving_outputs(elmo, sentences)

    module.tokens, module.default, module.serving_default = tokens, default, serving_default
    return module
