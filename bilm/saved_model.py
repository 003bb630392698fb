"""`Elmo` as a SavedModel, which runs without bilm and without Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.elmo import Elmo
from bilm.errors import OptionsError
from bilm.folders import replacing_folder
from bilm.warm_up import Request, write_warm_up

MARK = "saved_model.pb"
OTHERS = "fingerprint.pb", "variables", "assets", "assets.extra"  # that a SavedModel may hold
WARM_UP = "The bank closed early ."


def _module(elmo: Elmo, max_sentences: int | None, max_tokens: int | None) -> tf.Module:
    """Return the signatures over one `Elmo` layer, as attributes of a module.

    The module knows the variables, but not the layer: TensorFlow would write each variable of a
    Keras layer twice and initialize one of the two, so that only Python could load them.
    """
    module = tf.Module()
    module.weights = [variable.value for variable in elmo.variables]
    module.speller = elmo.speller()  # its lexicons, where it has any, are saved too

    def bounded(tokens):
        """Refuse a request that is too large before anything is computed for it."""
        shape, bounds = tf.shape(tokens), (max_sentences, max_tokens)
        names = "sentences", "tokens in a sentence"
        checks = [
            tf.debugging.assert_less_equal(
                shape[axis], bound, f"this model takes at most {bound} {names[axis]} per request"
            )
            for axis, bound in enumerate(bounds)
            if bound is not None
        ]
        with tf.control_dependencies(checks):
            return tf.identity(tokens)

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None), tf.string, name="tokens"),
            tf.TensorSpec((None,), tf.int32, name="sequence_len"),
        ]
    )
    def tokens(tokens, sequence_len):
        """Embed tokens string (B, T), of which each row has `sequence_len` (B,)."""
        there = tf.sequence_mask(sequence_len, tf.shape(tokens)[1])
        return _hub_outputs(elmo, tf.where(there, bounded(tokens), ""))

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="strings")])
    def default(strings):
        """Embed sentences string (B,), whose tokens stand between spaces."""
        return _hub_outputs(elmo, bounded(_split(strings)))

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="sentences")])
    def serving_default(sentences):
        """Embed sentences string (B,), whose tokens stand between spaces."""
        return serving_outputs(elmo, bounded(_split(sentences)))

    module.tokens, module.default, module.serving_default = tokens, default, serving_default
    return module


def _split(sentences: tf.Tensor) -> tf.Tensor:
    return tf.strings.split(sentences).to_tensor("")


def _embed(elmo: Elmo, tokens: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Return the layers, their mask as numbers (B, T, 1), token vectors, output and its mean."""
    layers, mask, vectors = elmo.layers_of(tokens)
    there = tf.cast(mask, tf.float32)[..., None]
    mixed = tf.cast(elmo.combined(layers, mask), tf.float32)
    mean = tf.math.divide_no_nan(tf.reduce_sum(mixed, axis=1), tf.reduce_sum(there, axis=1))
    return layers, there, vectors, mixed, mean


def _hub_outputs(elmo: Elmo, tokens: Any) -> dict[str, tf.Tensor]:
    layers, there, vectors, mixed, mean = _embed(elmo, tokens)
    outputs = {"word_emb": vectors * there, "elmo": mixed, "default": mean}
    for j in range(1, layers.shape[1]):
        outputs[f"lstm_outputs{j}"] = layers[:, j] * there
    return outputs


def serving_outputs(elmo: Elmo, tokens: Any) -> dict[str, tf.Tensor]:
    """Return what the signature `serving_default` gives, for tokens or ids that the layer reads."""
    layers, there, _, _, mean = _embed(elmo, tokens)
    n_tokens = tf.cast(tf.reduce_sum(there, axis=(1, 2)), tf.int32)
    return {"mean": mean, "layers": layers * there[:, None], "n_tokens": n_tokens}


def export_saved_model(
    elmo: Elmo,
    path: str | Path,
    max_sentences: int | None = None,
    max_tokens: int | None = None,
) -> None:
    """Write an `Elmo` layer as a SavedModel with three signatures, all of float32 outputs.

    It runs without bilm and Python: in TensorFlow Serving, C++, `saved_model_cli` and
    TensorFlow 1's loader. TensorFlow Serving warms up on requests that come with it.

    - `serving_default` takes `sentences` string (B,), tokens between spaces, and gives `mean`
      (B, 2 P), the mean of the layer's output over a sentence's tokens; `layers`
      (B, layers + 1, T, 2 P) of the biLM; `n_tokens` int32 (B,).
    - `tokens` and `default` are those of the old hub module. The one takes `tokens` string (B, T)
      and `sequence_len` int32 (B,), the other `strings` (B,), tokens between spaces. Both give
      `word_emb` (B, T, P), the tokens' vectors from their characters; `lstm_outputs1` and on,
      (B, T, 2 P), the layers above; `elmo` (B, T, 2 P), the layer's output; and `default`
      (B, 2 P), its mean.

    Values of tokens that are not there, and means of sentences without tokens, are 0.

    Args:
        elmo: the layer; its first representation is the one given.
        path: the folder to write, replaced if it holds a SavedModel. TensorFlow Serving expects a
            number as its name.
        max_sentences, max_tokens: the most sentences, and tokens in a sentence, that a request
            may have; None for any. A larger one is answered with an error of TensorFlow's, before
            memory is taken for it.
    Raises: OptionsError if the layer keeps state or its model reads words; WeightsError if it has
        no weights yet; DataError if the folder holds anything else.

    Example:
        module = tf.saved_model.load(path)
        module.signatures["serving_default"](sentences=tf.constant(["the cat sat"]))["mean"]
    """
    require_strings(elmo, "a SavedModel")
    if not elmo.built:
        elmo.build()
    elmo.require_weights()
    module = _module(elmo, max_sentences, max_tokens)
    names = "serving_default", "tokens", "default"
    with replacing_folder(path, MARK, OTHERS) as folder:
        tf.saved_model.save(module, str(folder), {name: getattr(module, name) for name in names})
        write_warm_up(folder, _requests(max_tokens))


def require_strings(elmo: Elmo, form: str) -> None:
    """Refuse a layer that cannot be stored to read strings. Raises: OptionsError."""
    if elmo.stateful:
        raise OptionsError(f"{form} holds a stateless Elmo; this one carries its state")
    if elmo.options.reads_words:
        raise OptionsError(
            f"{form} holds an Elmo that spells its words; this model reads those of a vocabulary, "
            "which has no place there"
        )


def _requests(max_tokens: int | None) -> list[Request]:
    """Return a request for each signature."""
    words = WARM_UP.split()[:max_tokens]
    tokens = {"tokens": np.array([words]), "sequence_len": np.array([len(words)], np.int32)}
    sentence = np.array([" ".join(words)])
    return [
        ("serving_default", {"sentences": sentence}),
        ("tokens", tokens),
        ("default", {"strings": sentence}),
    ]
