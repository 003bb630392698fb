"""The inputs of `Elmo`, strings or ids: their checks, their spelling and the mask of strings."""

import keras
from keras import ops

from bilm.data.alphabets import alphabet_of
from bilm.data.model_ids import check_ids, check_ids_shape
from bilm.errors import DataError
from bilm.layers.types import Tensor
from bilm.options.model_options import ModelOptions

LONG_INTEGERS = ("int64", "uint32", "uint64")  # dtypes whose values may exceed int32


def check_inputs(inputs: Tensor) -> None:
    """Raise DataError for lists of strings and symbolic tensors of another type, whose errors in
    Keras would not name the reason."""
    first = keras.tree.flatten(inputs)[:1]
    if first and isinstance(first[0], str):
        raise DataError(
            f"the inputs are a {type(inputs).__name__} of strings, expected a string tensor: "
            "tf.constant(tokens) (B, T) with '' as padding, or tf.constant(sentences) (B,); "
            "or, on any backend, ids: batcher().batch_sentences(tokens)"
        )
    if isinstance(inputs, keras.KerasTensor):
        _check_type(inputs)


def is_string(inputs: Tensor) -> bool:
    """Return whether a tensor contains strings."""
    return keras.backend.standardize_dtype(inputs.dtype) == "string"


def _check_type(inputs: Tensor) -> None:
    dtype = keras.backend.standardize_dtype(inputs.dtype)
    if dtype != "string" and "int" not in dtype:
        raise DataError(
            f"the inputs are {dtype}, expected strings or integer ids; set the type with "
            "keras.Input(shape, dtype=...), also as the first layer of keras.Sequential, or "
            "`input_dtype` of the class of your model"
        )


def ids_of(inputs: Tensor, options: ModelOptions, n_words: int | None) -> Tensor:
    """Return the ids that a biLM of `n_words` words reads, with the marks of sentences: characters
    integer (B, T + 2, C) or words (B, T + 2). Raises: DataError, ValueError."""
    if is_string(inputs):
        from bilm.layers.tensorflow.spelling import spelled, tokens_of

        alphabet = alphabet_of(options)
        if alphabet is None:
            raise ValueError("this biLM reads word ids from TokenBatcher; it cannot spell strings")
        return spelled(tokens_of(inputs), alphabet)

    # The values of ids are known in eager TensorFlow only.
    _check_type(inputs)
    check_ids_shape(inputs.shape, options)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if tf.executing_eagerly():
            check_ids(inputs.numpy(), options, n_words)
    dtype = keras.backend.standardize_dtype(inputs.dtype)
    return ops.cast(inputs, "int64" if dtype in LONG_INTEGERS else "int32")


@keras.saving.register_keras_serializable(package="bilm")
class WordMask(keras.Operation):
    """The mask of strings that `Elmo` reads, tokens (B, T) or sentences (B,): boolean (B, T)."""

    def call(self, strings: Tensor) -> Tensor:
        """Return the positions of words."""
        from bilm.layers.tensorflow.spelling import tokens_of

        return ops.not_equal(tokens_of(strings), "")
