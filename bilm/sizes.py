"""How many numbers a model holds, by its options alone."""

from __future__ import annotations

from collections.abc import Iterator

from bilm.lexicon_options import LexiconEncoderOptions
from bilm.options import CharCnnOptions, ModelOptions
from bilm.rules import N_CHARACTERS


def dense_sizes(options: ModelOptions) -> Iterator[int]:
    """Yield the size of each variable as files hold it, without the tables of a vocabulary file.

    Tables of an ELMoForManyLangs lexicon are counted.
    """
    lstm, width = options.lstm, options.lstm.projection_dim
    for _ in range(lstm.n_layers * len(options.directions)):
        yield 2 * width * 4 * lstm.dim
        yield 4 * lstm.dim
        if width != lstm.dim:
            yield lstm.dim * width
    if options.reads_words:
        return
    cnn, lexicons, n_features = options.char_cnn, options.lexicon_encoder, 0
    if lexicons is not None and lexicons.words is not None:
        yield lexicons.words.n_rows * lexicons.words.dim
        n_features = lexicons.words.dim
    if cnn is not None or lexicons.characters is not None:
        n_characters = N_CHARACTERS if cnn is not None else lexicons.characters.n_rows
        dim = cnn.embedding.dim if cnn is not None else lexicons.characters.dim
        yield n_characters * dim
        yield from _cnn_sizes(cnn or lexicons, dim)
        n_features += sum(number for _, number in (cnn or lexicons).filters)
    if lexicons is not None or n_features != width:
        yield from (n_features * width, width)


def _cnn_sizes(cnn: CharCnnOptions | LexiconEncoderOptions, dim: int) -> Iterator[int]:
    for n_places, number in cnn.filters:
        yield n_places * dim * number
        yield number
    n_filters = sum(number for _, number in cnn.filters)
    for _ in range(cnn.n_highway):
        yield from (n_filters * n_filters, n_filters) * 2


def count_parameters(options: ModelOptions, n_tokens: int) -> tuple[int, int]:
    """Return how many numbers are learned, and how many of them are in tables of words.

    Args:
        options: of a model with its softmax.
        n_tokens: vocabulary size.
    """
    n_tables = options.reads_words + (not options.share_embedding_softmax)
    n_rows = n_tokens * (n_tables * options.lstm.projection_dim + 1)  # a bias per word
    return sum(dense_sizes(options)) + n_rows, n_rows
