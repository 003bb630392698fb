"""Export of `Elmo` as a SavedModel, which runs without bilm and without Python."""

from pathlib import Path

import tensorflow as tf

from bilm.elmo.layer import Elmo
from bilm.errors import OptionsError
from bilm.support.files import new_folder

Outputs = dict[str, tf.Tensor]


def export_saved_model(elmo: Elmo, path: str | Path) -> None:
    """Write an `Elmo` layer as a SavedModel with three signatures, all with float32 outputs.

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
    Raises: OptionsError if the layer is stateful or its model reads words or lexicons; DataError if
        the folder contains other files; WeightsError, OSError.
    """
    require_strings(elmo, "a SavedModel")
    if elmo.options.lexicon_encoder is not None:
        raise OptionsError(
            "a SavedModel cannot contain the lexicons of ELMoForManyLangs; export the model to "
            "ONNX, which reads the ids of its batcher()"
        )

    tokens_spec = tf.TensorSpec((None, None), tf.string, name="tokens")
    lengths_spec = tf.TensorSpec((None,), tf.int32, name="sequence_len")

    @tf.function(input_signature=[tokens_spec, lengths_spec])
    def tokens(tokens: tf.Tensor, sequence_len: tf.Tensor) -> Outputs:
        return hub_outputs(elmo, tokens, sequence_len)

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="strings")])
    def default(strings: tf.Tensor) -> Outputs:
        return hub_outputs(elmo, strings)

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="sentences")])
    def serving_default(sentences: tf.Tensor) -> Outputs:
        return serving_outputs(elmo, sentences)

    # The module refers to the variables and not to the layer: TensorFlow would write each variable
    # of a Keras layer twice and initialize only one copy, so only Python could load them.
    module = tf.Module()
    module.weights = [variable.value for variable in elmo.variables]
    signatures = {"serving_default": serving_default, "tokens": tokens, "default": default}
    for name, function in signatures.items():
        setattr(module, name, function)
    with new_folder(path) as folder:
        tf.saved_model.save(module, str(folder), signatures)


def require_strings(elmo: Elmo, form: str) -> None:
    """Build a layer. Raises: OptionsError if it cannot be exported to a form that reads strings."""
    if elmo.stateful:
        raise OptionsError(f"{form} requires a stateless Elmo; this one has stateful=True")
    if elmo.options.reads_words:
        raise OptionsError(
            f"{form} requires a model that reads characters; this model reads words, whose "
            "vocabulary cannot be exported"
        )
    if not elmo.built:
        elmo.build()


def hub_outputs(elmo: Elmo, tokens: tf.Tensor, lengths: tf.Tensor | None = None) -> Outputs:
    """Return the outputs of `tokens`; `lengths` is its `sequence_len`, or None for all tokens."""
    if lengths is not None:
        is_inside = tf.sequence_mask(lengths, tf.shape(tokens)[1])  # B, T
        tokens = tf.where(is_inside, tokens, "")
    embedded = _embed(elmo, tokens)
    outputs = {"word_emb": embedded["vectors"]}
    for number in range(1, embedded["layers"].shape[1]):
        outputs[f"lstm_outputs{number}"] = embedded["layers"][:, number]
    return {**outputs, "elmo": embedded["output"], "default": embedded["mean"]}


def serving_outputs(elmo: Elmo, inputs: tf.Tensor) -> Outputs:
    """Return the outputs of `serving_default` for any inputs of the layer."""
    embedded = _embed(elmo, inputs)
    return {name: embedded[name] for name in ("mean", "layers", "n_tokens")}


def _embed(elmo: Elmo, inputs: tf.Tensor) -> Outputs:
    """Return what an `Elmo` layer computes, as float32 and 0 at padding."""
    layers, mask, vectors = elmo.layers_of(inputs)
    output = tf.cast(elmo.combined(layers, mask), tf.float32)  # B, T, 2 P
    is_token = tf.cast(mask, tf.float32)[..., None]  # B, T, 1
    n_tokens = tf.reduce_sum(is_token, axis=1)  # B, 1
    return {
        "layers": layers * is_token[:, None],  # B, layers + 1, T, 2 P
        "vectors": vectors * is_token,  # B, T, P, from the characters of the tokens
        "output": output,
        "mean": tf.math.divide_no_nan(tf.reduce_sum(output, axis=1), n_tokens),  # B, 2 P
        "n_tokens": tf.cast(n_tokens[:, 0], tf.int32),  # B
    }
