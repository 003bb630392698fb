"""The model as data: the name, shape and kind of each tensor of a biLM, for given options.

`PARTS` describes the tensors of each part of a biLM, and `tensors_of` lists those of a model.

Axes of shapes: E width of a character's vector, F number of filters, D LSTM units, P projection.
"""

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from bilm.options.model_options import ModelOptions

FLOAT_BYTES = 4  # of a value, which is float32
Filters = Sequence[tuple[int, int]]  # pairs (width in characters, number of filters)
GATES = "ijfo"  # the gates of an LSTM cell, in the order of the columns of its kernel
N_GATES = len(GATES)


class Kind(Enum):
    """How the computation reads a tensor. Optimizers update each kind in its own way."""

    TABLE = "table"  # ids select rows, and a training step updates only these rows
    FILTER = "filter"  # a convolution over characters
    MATRIX = "matrix"  # multiplies vectors
    BIAS = "bias"  # is added to vectors


@dataclass(frozen=True)
class Row:
    """A row of the description: a tensor, or several that differ in `{i}`, the number of a filter
    or layer, or in `{k}`, the number of the direction."""

    attribute: str  # name in its layer
    name: str  # in the HDF5 format that bilm-tf, AllenNLP and simple_elmo share
    axes: tuple[str | int, ...]  # the shape; a string is a key of the part's sizes
    kind: Kind
    blocks: tuple[int, int] = (1, 1)  # numbers of equal matrices above and beside each other
    has_padding: bool = False  # whether padding adds a row of zeros above the stored rows


CELL = "RNN_{k}/RNN/MultiRNNCell/Cell{i}/LSTMCell"

PARTS = {
    "word table": (Row("embedding", "embedding", ("words", "P"), Kind.TABLE, has_padding=True),),
    "lexicon": (Row("word_table", "word_embed", ("words", "width"), Kind.TABLE, has_padding=True),),
    "characters": (
        Row("embedding", "char_embed", ("characters", "E"), Kind.TABLE, has_padding=True),
    ),
    "filter": (
        Row("kernel_{i}", "CNN/W_cnn_{i}", (1, "width", "E", "filters"), Kind.FILTER),
        Row("bias_{i}", "CNN/b_cnn_{i}", ("filters",), Kind.BIAS),
    ),
    "highway": (
        Row("gate_{i}", "CNN_high_{i}/W_carry", ("F", "F"), Kind.MATRIX),
        Row("gate_bias_{i}", "CNN_high_{i}/b_carry", ("F",), Kind.BIAS),
        Row("transform_{i}", "CNN_high_{i}/W_transform", ("F", "F"), Kind.MATRIX),
        Row("bias_{i}", "CNN_high_{i}/b_transform", ("F",), Kind.BIAS),
    ),
    "projection": (
        Row("kernel", "CNN_proj/W_proj", ("features", "P"), Kind.MATRIX),
        Row("bias", "CNN_proj/b_proj", ("P",), Kind.BIAS),
    ),
    # The rows of the kernel are those of the input above those of the hidden state; its columns are
    # the `GATES`.
    "cell": (
        Row("kernel", f"{CELL}/W_0", ("input + P", "4 D"), Kind.MATRIX, blocks=(2, N_GATES)),
        Row("bias", f"{CELL}/B", ("4 D",), Kind.BIAS),
    ),
    "cell projection": (Row("projection", f"{CELL}/W_P_0", ("D", "P"), Kind.MATRIX),),
    "softmax kernel": (Row("kernel", "softmax/W", ("words", "P"), Kind.TABLE),),
    "softmax bias": (Row("bias", "softmax/b", ("words",), Kind.BIAS),),
}
LAYERS = {  # the layer of a `BiLM` that contains a part, except the cells
    "word table": "encoder",
    "lexicon": "encoder",
    "characters": "encoder.cnn",
    "filter": "encoder.cnn",
    "highway": "encoder.highway",
    "projection": "encoder",
    "softmax kernel": "softmax",
    "softmax bias": "softmax",
}
ROWS = [row for rows in PARTS.values() for row in rows]
SOFTMAX = "softmax/"  # start of the names in the softmax


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of a model. `name` and `attribute` come from its row, with the numbers of its
    direction and of its layer or filter; `shape` has no row for padding."""

    name: str
    part: str  # a key of `PARTS`
    k: int
    i: int
    attribute: str
    shape: tuple[int, ...]
    row: Row

    @property
    def size(self) -> int:
        """The number of its values."""
        return math.prod(self.shape)


# --- the tensors of a part, from its sizes ---


def part(name: str, sizes: Mapping[str, int], k: int = 0, i: int = 0) -> list[TensorSpec]:
    """Return the tensors of one of `PARTS`, for sizes by the names of the axes; `k`, `i`: number of
    the direction, and of the layer or filter."""
    specs = []
    for row in PARTS[name]:
        shape = tuple(sizes[axis] if isinstance(axis, str) else axis for axis in row.axes)
        attribute = row.attribute.format(i=i)
        specs.append(TensorSpec(row.name.format(k=k, i=i), name, k, i, attribute, shape, row))
    return specs


def character_cnn(n_characters: int, dim: int, filters: Filters) -> list[TensorSpec]:
    """Return the table of characters, then the kernel and the bias of each filter width."""
    specs = part("characters", {"characters": n_characters, "E": dim})
    for i, (width, n_filters) in enumerate(filters):
        specs += part("filter", {"width": width, "E": dim, "filters": n_filters}, i=i)
    return specs


def cell(input_dim: int, dim: int, projection_dim: int, k: int = 0, i: int = 0) -> list[TensorSpec]:
    """Return the kernel, the bias and, if the widths differ, the projection of an LSTM cell."""
    n_columns = N_GATES * dim
    n_rows = input_dim + projection_dim
    sizes = {"input + P": n_rows, "4 D": n_columns, "D": dim, "P": projection_dim}
    specs = part("cell", sizes, k, i)
    if projection_dim != dim:
        specs += part("cell projection", sizes, k, i)
    return specs


def softmax(n_words: int, projection_dim: int, shares_table: bool) -> list[TensorSpec]:
    """Return the kernel, unless it is the table of word vectors, and the bias of the softmax."""
    sizes = {"words": n_words, "P": projection_dim}
    kernel = [] if shares_table else part("softmax kernel", sizes)
    return kernel + part("softmax bias", sizes)


# --- the tensors of a model ---


def tensors_of(
    options: ModelOptions, n_words: int | None = None, has_softmax: bool = False
) -> list[TensorSpec]:
    """Return the tensors of a model, in the order of the computation. Without `n_words`, the size
    of the vocabulary, which a softmax requires, tables with a row per word are left out, except
    those of a lexicon."""
    lstm = options.lstm
    specs = list(_encoder(options, n_words))
    for k in range(len(options.directions)):
        for i in range(lstm.n_layers):
            specs += cell(lstm.projection_dim, lstm.dim, lstm.projection_dim, k, i)
    if has_softmax:
        assert n_words is not None
        specs += softmax(n_words, lstm.projection_dim, options.share_embedding_softmax)
    return specs


def n_parameters(options: ModelOptions, n_words: int | None = None) -> int:
    """Return the number of parameters without the softmax; `n_words`: see `tensors_of`."""
    return sum(spec.size for spec in tensors_of(options, n_words))


def n_filters(filters: Filters) -> int:
    """Return the number of filters of all widths."""
    return sum(number for _, number in filters)


def _encoder(options: ModelOptions, n_words: int | None) -> Iterator[TensorSpec]:
    width = options.lstm.projection_dim
    encoder = options.encoder
    if encoder is None:
        if n_words is not None:
            yield from part("word table", {"words": n_words, "P": width})
        return

    n_features = n_filters(options.filters)
    if encoder.words is not None:
        n_features += encoder.words.dim
        yield from part("lexicon", {"words": encoder.words.n_rows, "width": encoder.words.dim})
    if encoder.characters is not None:
        characters = encoder.characters
        yield from character_cnn(characters.n_rows, characters.dim, options.filters)
        for i in range(encoder.n_highway):
            yield from part("highway", {"F": n_filters(options.filters)}, i=i)
    if options.lexicon_encoder is not None or n_features != width:
        yield from part("projection", {"features": n_features, "P": width})


# --- the sizes of a model, for its description ---


def sizes_of(options: ModelOptions, n_words: int | None, n_classes: int = 0) -> dict[str, object]:
    """Return inputs, sizes and limits of a model, by the names of `bilm info --json`. `n_words`:
    size of its vocabulary, None if unknown; `n_classes`: words of its softmax."""
    lstm, cnn, lexicons = options.lstm, options.char_cnn, options.lexicon_encoder
    n_weights = n_parameters(options, n_words)
    of_softmax = softmax(n_classes, lstm.projection_dim, options.share_embedding_softmax)
    return {
        "reads": _reads(options),
        "directions": list(options.directions),
        "lstm_layers": lstm.n_layers,
        "lstm_dim": lstm.dim,
        "projection_dim": lstm.projection_dim,
        "vector_dim": len(options.directions) * lstm.projection_dim,
        "character_filters": n_filters(options.filters),
        "highway_layers": options.encoder.n_highway if options.encoder else 0,
        "parameters": n_weights,
        "softmax_parameters": sum(spec.size for spec in of_softmax),
        "vocabulary": n_words,
        "max_word_bytes": cnn.max_characters_per_token - 2 if cnn else None,
        "max_word_characters": lexicons.max_characters_per_token - 2 if lexicons else None,
        "embedder_bytes": FLOAT_BYTES * n_weights,
    }


def _reads(options: ModelOptions) -> str:
    """Return what a model's tokens are: characters, words, or both."""
    lexicons = options.lexicon_encoder
    if lexicons is None:
        return "words" if options.reads_words else "characters"
    names = [name for name in ("words", "characters") if getattr(lexicons, name)]
    return " and ".join(names) + " of lexicons"


# --- from a stored name ---


def is_bilm(name: str) -> bool:
    """Return whether a tensor belongs to the biLM, not to its softmax."""
    return not name.startswith(SOFTMAX)


@functools.cache
def row_of(name: str) -> Row:
    """Return the row of the description to which a tensor belongs. Raises: KeyError."""
    for row in ROWS:
        if template_pattern(row.name).fullmatch(name):
            return row
    raise KeyError(name)


@functools.cache
def template_pattern(template: str) -> re.Pattern[str]:
    """Return the pattern of the names of a template, with the groups `k` and `i`."""
    return re.compile(re.sub(r"\\{(\w)\\}", r"(?P<\1>\\d+)", re.escape(template)))
