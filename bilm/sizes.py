"""How many numbers a model holds, by its options alone."""

from __future__ import annotations

from collections.abc import Iterator

from bilm.options import N_CHARACTERS, ModelOptions


def dense_sizes(options: ModelOptions) -> Iterator[int]:
    """Yield the size of each variable but for tables with a row per word, as files hold it."""
    cnn, lstm = options.char_cnn, options.lstm
    for _ in range(lstm.n_layers * len(options.directions)):
        yield 2 * lstm.projection_dim * 4 * lstm.dim
        yield 4 * lstm.dim
        if lstm.projection_dim != lstm.dim:
            yield lstm.dim * lstm.projection_dim
    if cnn is None:
        return
    yield N_CHARACTERS * cnn.embedding.dim
    for width, number in cnn.filters:
        yield width * cnn.embedding.dim * number
        yield number
    n_filters = sum(number for _, number in cnn.filters)
    for _ in range(cnn.n_highway):
        yield from (n_filters * n_filters, n_filters) * 2
    if n_filters != lstm.projection_dim:
        yield from (n_filters * lstm.projection_dim, lstm.projection_dim)


def count_parameters(options: ModelOptions, n_tokens: int) -> tuple[int, int]:
    """Return how many numbers are learned, and how many of them are in tables of words.

    Args:
        options: of a model with its softmax.
        n_tokens: vocabulary size.
    """
    n_tables = (options.char_cnn is None) + (not options.share_embedding_softmax)
    n_rows = n_tokens * (n_tables * options.lstm.projection_dim + 1)  # a bias per word
    return sum(dense_sizes(options)) + n_rows, n_rows
