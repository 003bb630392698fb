"""The sizes of a model, from its options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bilm.options.model_options import ModelOptions
from bilm.tensors import FLOAT_BYTES, n_filters, n_parameters, softmax


def sizes_of(options: ModelOptions, n_words: int | None, n_classes: int = 0) -> dict[str, Any]:
    """Return the inputs, sizes and limits of a model, by the names of `bilm info --json`.

    Args:
        n_words: size of its vocabulary, None if no file contains it.
        n_classes: number of words that its softmax predicts, 0 without one.
    """
    lstm, cnn, lexicons = options.lstm, options.char_cnn, options.lexicon_encoder
    filters, n_highway = _character_layers(options)
    n_weights = n_parameters(options, n_words)
    of_softmax = softmax(n_classes, lstm.projection_dim, options.share_embedding_softmax)
    return {
        "reads": _reads(options),
        "directions": list(options.directions),
        "lstm_layers": lstm.n_layers,
        "lstm_dim": lstm.dim,
        "projection_dim": lstm.projection_dim,
        "vector_dim": len(options.directions) * lstm.projection_dim,
        "character_filters": n_filters(filters),
        "highway_layers": n_highway,
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
        return "words" if options.char_cnn is None else "characters"
    tables = {"words": lexicons.words, "characters": lexicons.characters}
    return " and ".join(name for name, table in tables.items() if table) + " of lexicons"


def _character_layers(options: ModelOptions) -> tuple[Sequence[tuple[int, int]], int]:
    """Return the filters of the character CNN and its number of highway layers."""
    cnn, lexicons = options.char_cnn, options.lexicon_encoder
    if cnn is not None:
        return cnn.filters, cnn.n_highway
    if lexicons is not None and lexicons.characters is not None:
        return lexicons.filters or (), lexicons.n_highway
    return (), 0
