"""The rules that values of options obey, each with the words that an error has for it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from bilm.schema import Rule

N_CHARACTERS = 261  # what training learns: 256 bytes and 5 marks
N_CHARACTERS_WITH_PADDING = 262  # what is exported: a row of zeros above them, for padding
MAX_SIZE = 2**31 - 1  # of an axis: ids and places in tables are int32
LARGEST = 2**63 - 1  # of what is counted: int64
MAX_LAYERS = 128  # of LSTMs, of highways and of filters: each takes milliseconds to make
MIN_FLOAT32, MAX_FLOAT32 = 1e-37, 3e38  # beyond them float32 has 0 and infinity
MAX_WORD_LENGTH = 10_000  # every token of a batch takes room for so many characters


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and abs(value) <= sys.float_info.max  # neither NaN nor infinite


def _is_filters(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and 0 < len(value) <= MAX_LAYERS
        and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value)
        and all(_is_integer(number) and 0 < number <= MAX_SIZE for pair in value for number in pair)
    )


BOOLEAN = Rule(lambda value: isinstance(value, bool), "true or false")
NUMBER = Rule(
    lambda value: _is_integer(value) and 0 < value <= LARGEST, f"a positive integer up to {LARGEST}"
)
SIZE = Rule(
    lambda value: _is_integer(value) and 0 < value <= MAX_SIZE,
    f"a positive integer up to {MAX_SIZE}",
)
LAYERS = Rule(
    lambda value: _is_integer(value) and 0 < value <= MAX_LAYERS,
    f"an integer from 1 to {MAX_LAYERS}",
)
LAYERS_OR_NONE = Rule(
    lambda value: _is_integer(value) and 0 <= value <= MAX_LAYERS,
    f"an integer from 0 to {MAX_LAYERS}",
)
POSITIVE = Rule(
    lambda value: _is_number(value) and MIN_FLOAT32 <= value <= MAX_FLOAT32,
    f"a positive number from {MIN_FLOAT32:g} to {MAX_FLOAT32:g}, which float32 holds",
)
PROBABILITY = Rule(lambda value: _is_number(value) and 0 <= value < 1, "a number in [0, 1)")
COUNT = Rule(
    lambda value: _is_integer(value) and 0 <= value <= LARGEST, f"an integer from 0 to {LARGEST}"
)
SHARE = Rule(lambda value: _is_number(value) and 0 <= value <= 1, "a number in [0, 1]")
ACTIVATION = Rule(lambda value: value in ("relu", "tanh"), '"relu" or "tanh"')
FILTERS = Rule(
    _is_filters, f"a list of 1 to {MAX_LAYERS} pairs [width, number] of positive integers"
)
WORD_LENGTH = Rule(
    lambda value: _is_integer(value) and 3 <= value <= MAX_WORD_LENGTH,
    f"an integer from 3 (the begin mark, one character, the end mark) to {MAX_WORD_LENGTH}",
)
DIM_OR_NONE = Rule(
    lambda value: _is_integer(value) and 0 <= value <= MAX_SIZE,
    f"an integer from 0 (none) to {MAX_SIZE}",
)
CLIP = Rule(
    lambda value: _is_number(value) and (value == 0 or MIN_FLOAT32 <= value <= MAX_FLOAT32),
    f"0 (none) or a positive number up to {MAX_FLOAT32:g}",
)
TEXT = Rule(lambda value: isinstance(value, str), "a string")
LEXICON = Rule(
    lambda value: (
        isinstance(value, Mapping)
        and all(isinstance(key, str) and _is_integer(id_) for key, id_ in value.items())
    ),
    "an object of integer ids by string",
)
CHARACTERS = Rule(
    lambda value: _is_integer(value) and value in (N_CHARACTERS, N_CHARACTERS_WITH_PADDING),
    f"{N_CHARACTERS}, or {N_CHARACTERS_WITH_PADDING} in an exported file",
)
