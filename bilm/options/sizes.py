"""Numbers of parameters, computed from the options alone."""

from __future__ import annotations

from collections.abc import Iterator

from bilm.options.model_options import N_CHARACTERS, ModelOptions


def dense_sizes(options: ModelOptions) -> Iterator[int]:
    """Yield the size of each stored variable, except tables of a vocabulary file.

    Tables of an ELMoForManyLangs lexicon are included.
    """
    lstm, width = options.lstm, options.lstm.projection_dim
    for _ in range(lstm.n_layers * len(options.directions)):
        yield 2 * width * 4 * lstm.dim
        yield 4 * lstm.dim
        if width != lstm.dim:
            yield lstm.dim * width
    cnn, lexicons = options.char_cnn, options.lexicon_encoder
    n_features = 0
    if cnn is not None:
        dim = cnn.embedding.dim
        yield N_CHARACTERS * dim
        yield from _cnn_sizes(cnn.filters, cnn.n_highway, dim)
        n_features = _n_filters(cnn.filters)
    if lexicons is not None:
        if lexicons.words is not None:
            yield lexicons.words.n_rows * lexicons.words.dim
            n_features += lexicons.words.dim
        if lexicons.characters is not None:
            filters, dim = lexicons.filters or (), lexicons.characters.dim
            yield lexicons.characters.n_rows * dim
            yield from _cnn_sizes(filters, lexicons.n_highway, dim)
            n_features += _n_filters(filters)
    if lexicons is not None or (cnn is not None and n_features != width):
        yield n_features * width
        yield width


def _n_filters(filters: tuple[tuple[int, int], ...]) -> int:
    return sum(number for _, number in filters)


def _cnn_sizes(filters: tuple[tuple[int, int], ...], n_highway: int, dim: int) -> Iterator[int]:
    for n_places, number in filters:
        yield n_places * dim * number
        yield number
    n_filters = _n_filters(filters)
    for _ in range(2 * n_highway):
        yield n_filters * n_filters
        yield n_filters


def count_parameters(options: ModelOptions, n_tokens: int) -> tuple[int, int]:
    """Return the number of parameters, and how many of them are in tables of words.

    Args:
        options: the options of a model with a softmax.
        n_tokens: vocabulary size.
    """
    n_tables = options.reads_words + (not options.share_embedding_softmax)
    n_rows = n_tokens * (n_tables * options.lstm.projection_dim + 1)  # a bias per word
    return sum(dense_sizes(options)) + n_rows, n_rows
