"""TensorFlow Hub's `load`, `Module` and `KerasLayer` for ELMo modules.

Programs that were written for `tensorflow_hub` change the import only:

    from bilm.compat import tfhub as hub

and remove the sessions of TensorFlow 1; docs/migration.md lists the differences. Sentences are
split at any white space. Requires the TensorFlow backend of Keras.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from bilm.elmo.layer import Elmo
from bilm.errors import DataError, WeightsError, require_one_of
from bilm.export.saved_model import Outputs, hub_outputs, require_strings
from bilm.layers.functional import compiled
from bilm.layers.types import Tensor
from bilm.storage.finding import registry
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.process import require_backend

SIGNATURES = {  # the inputs of each, with their numbers of axes
    "default": {"strings": 1},
    "tokens": {"tokens": 2, "sequence_len": 1},
}
HANDLE = re.compile(
    r"https?://(?:(?:alpha\.)?tfhub\.dev|(?:www\.)?kaggle\.com/models)/google/elmo(?:/.*)?/(\d+)/?"
)


def load(
    handle: str | Path | StoredModel, tags: object = None, options: object = None
) -> KerasLayer:
    """Return a module, whose dict `signatures` contains the functions `default` and `tokens`: see
    `KerasLayer`. `tags` and `options` are not needed.

    Example:
        elmo = load("https://tfhub.dev/google/elmo/3").signatures["default"]
        vectors = elmo(tf.constant(["the cat sat", "hello"]))["elmo"]  # 2, 3, 2 P
    """
    return KerasLayer(handle)


@keras.saving.register_keras_serializable(package="bilm")
class KerasLayer(keras.layers.Layer):
    """An ELMo module as a Keras layer and as the callable `hub.Module`.

    Args:
        handle: the URL of a module of Google, such as `https://tfhub.dev/google/elmo/3`, which is
            downloaded unless TensorFlow Hub has cached it; or any model: see `open_model`. A model
            without a learned mix starts with the mean of its layers.
        trainable: whether to train the mix.
        signature: `default` or `tokens`.
        output_key: the output to return; None for `default`.
        signature_outputs_as_dict: return the dict of all outputs.
        tags, input_shape, output_shape, dtype: accepted and not needed.

    Inputs: strings (B,), split into words, for `default`; a dict of `tokens`, string (B, T), and
        `sequence_len`, integer (B,), their numbers, for `tokens`. Lists become tensors.
    Outputs: see `bilm.export_saved_model`.
    Raises: OptionsError, WeightsError; when called, DataError for other inputs.
    """

    # The type of the inputs, which `keras.Sequential` reads from its first layer.
    compute_dtype = variable_dtype = "string"

    def __init__(
        self,
        handle: str | Path | StoredModel | Mapping,
        trainable: bool = False,
        signature: str = "default",
        output_key: str | None = None,
        signature_outputs_as_dict: bool = False,
        name: str | None = None,
        tags: object = None,
        input_shape: object = None,
        output_shape: object = None,
        dtype: object = None,
    ):
        require_backend("tensorflow", "TensorFlow", "bilm.compat.tfhub")
        super().__init__(trainable=trainable, autocast=False, name=name)
        self.signature, self.output_key = signature, output_key
        self.signature_outputs_as_dict = signature_outputs_as_dict
        if isinstance(handle, Mapping):  # of `get_config`
            self.elmo = Elmo.from_config(handle)
        else:
            stored = _opened(handle)
            self.elmo = Elmo(stored, combine="stored" if stored.mixes else "mix")
        self.elmo.trainable = trainable
        require_strings(self.elmo, "a module of TensorFlow Hub")
        self._outputs = compiled(partial(hub_outputs, self.elmo))

    def build(self, input_shape: object = None) -> None:
        """Do nothing: the variables exist."""

    def __call__(
        self,
        inputs: Tensor,
        signature: str | None = None,
        as_dict: bool | None = None,
        **kwargs: Any,
    ) -> Tensor | Outputs:
        """Call the layer: see the class and `call`."""
        if isinstance(inputs, Mapping):
            inputs = {name: _tensor(value) for name, value in inputs.items()}
        else:
            inputs = _tensor(inputs)
        return super().__call__(inputs, signature=signature, as_dict=as_dict, **kwargs)

    def call(
        self, inputs: Tensor, signature: str | None = None, as_dict: bool | None = None
    ) -> Tensor | Outputs:
        """Return one output, or the dict of all; None for the arguments of the layer."""
        signature = signature or self.signature
        outputs = self._outputs(*_checked(inputs, signature))
        if self.signature_outputs_as_dict if as_dict is None else as_dict:
            return outputs
        key = self.output_key or "default"
        require_one_of("output_key", key, outputs)
        return outputs[key]

    @property
    def signatures(self) -> dict[str, Callable[..., Outputs]]:
        """The function of each signature, from tensors, by position or name, to all outputs."""

        def default(strings: Tensor) -> Outputs:
            return self(strings, "default", as_dict=True)

        def tokens(tokens: Tensor, sequence_len: Tensor) -> Outputs:
            inputs = {"tokens": tokens, "sequence_len": sequence_len}
            return self(inputs, "tokens", as_dict=True)

        return {"default": default, "tokens": tokens}

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, with the options of the model instead of its handle."""
        return {
            **super().get_config(),
            "signature": self.signature,
            "output_key": self.output_key,
            "signature_outputs_as_dict": self.signature_outputs_as_dict,
            "handle": self.elmo.get_config(),
        }


Module = KerasLayer


def _opened(handle: str | Path | StoredModel) -> StoredModel:
    """Open a model; a module of Google from the cache of TensorFlow Hub, or its addresses. Raises:
    WeightsError, naming other English models."""
    module = HANDLE.fullmatch(handle) if isinstance(handle, str) else None
    if module is None:
        return open_model(handle)
    cache = os.environ.get("TFHUB_CACHE_DIR") or Path(tempfile.gettempdir(), "tfhub_modules")
    folder = Path(cache, hashlib.sha1(module[0].encode()).hexdigest())
    if folder.is_dir():
        return open_model(folder)
    try:
        return open_model(f"{registry.TFHUB}/google/elmo/{module[1]}")
    except WeightsError as error:
        english = ", ".join(model.name for model in registry.MODELS.values() if model.code == "en")
        raise WeightsError(
            f"{error}; load also takes the module's folder or archive, and other published "
            f"English models: {english}"
        ) from error


def _tensor(value: Tensor) -> Tensor:
    is_tensor = tf.is_tensor(value) or isinstance(value, keras.KerasTensor)
    return value if is_tensor else tf.convert_to_tensor(value)


def _checked(inputs: Tensor, signature: str) -> list[tf.Tensor]:
    """Return the inputs of a signature in their order. Raises: OptionsError, DataError."""
    require_one_of("signature", signature, SIGNATURES)
    expected = SIGNATURES[signature]
    by_name = inputs if isinstance(inputs, Mapping) else {next(iter(expected)): inputs}
    ranks = {name: tensor.shape.rank for name, tensor in by_name.items()}
    is_expected = ranks.keys() == expected.keys() and all(
        rank in (None, expected[name]) for name, rank in ranks.items()
    )
    if not is_expected:
        raise DataError(
            f"signature {signature!r}: found numbers of axes {ranks}, expected {expected}"
        )

    if signature == "default":
        return [tf.ensure_shape(by_name["strings"], [None])]
    tokens = tf.ensure_shape(by_name["tokens"], [None, None])
    lengths = tf.cast(tf.ensure_shape(by_name["sequence_len"], tokens.shape[:1]), tf.int32)
    message = "sequence_len exceeds the number of columns of tokens"
    tf.debugging.assert_less_equal(lengths, tf.shape(tokens)[1], message)
    return [tokens, lengths]
