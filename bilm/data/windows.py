"""Windows of ids as the model takes them: each distinct token once, tokens of like length together.

Training, evaluation, scoring and the cache of token vectors share these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bilm.data.vocabulary import PAD_CHAR
from bilm.options import ModelOptions

# Of the distinct words in a window of English 37 % are up to 6 bytes long with their marks, 77 % up
# to 9, 98 % up to 14. The character CNN then works at 0.65 of the places it had in one group.
GROUP_LENGTHS = (6, 9, 14, 24)
GROUP_ROWS, GROUP_ROWS_MIN, CHARACTER_STEP = 16, 8, 4
SUFFIX = {"forward": "", "backward": "_reverse"}


def model_batch(window: dict, options: ModelOptions) -> dict:
    """Replace a window's tokens by the list of the distinct ones and places in it.

    The encoder then sees each distinct token once. Nothing in it depends on the place, so the
    numbers are the same; of the tokens in 32 x 20 windows of two directions, 43 % are distinct.

    Args:
        window: as `LMDataset.iter_batches` gives it.
        options: what shapes the model.
    Returns: dict of `distinct` int32 (U,), or of characters in groups as `grouped` gives them, and
        for each direction `places` and `targets`, int32 (B, T).
    """
    directions = options.directions
    key = "token_ids" if options.char_cnn is None else "tokens_characters"
    tokens = np.stack([window[key + SUFFIX[d]] for d in directions])
    lead = tokens.shape[:3]
    if options.char_cnn is None:
        distinct, places = np.unique(tokens.reshape(-1), return_inverse=True)
        distinct = distinct.astype(np.int32)
    else:
        rows, places = _distinct_rows(tokens.reshape(-1, tokens.shape[-1]).astype(np.int16))
        distinct, order = grouped(rows, options)
        places = order[places]
    places = places.reshape(lead).astype(np.int32)
    return {
        "distinct": distinct,
        "places": dict(zip(directions, places, strict=True)),
        "targets": {d: window["next_token_id" + SUFFIX[d]].astype(np.int32) for d in directions},
    }


def group_lengths(options: ModelOptions) -> list[int]:
    """Return how many characters a token of each group has at most; the last group has no bound."""
    widest = max(width for width, _ in options.char_cnn.filters)
    limit = options.char_cnn.max_characters_per_token
    return [length for length in GROUP_LENGTHS if length + widest < limit]


def grouped(rows: np.ndarray, options: ModelOptions) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Put tokens of like length together and cut the characters after them.

    Every window past a token and the widest filter sees padding alone, as one before it does: what
    is cut off changes no maximum. Rows of padding fill a group up to a few sizes, for each of
    which oneDNN makes and keeps code of its own.

    Args:
        rows: integer (U, C), a token each.
        options: what shapes the model.
    Returns: the groups, int32 (U_i, C_i), and the place of each token among all their rows, (U,).
        C_i is the bound of `group_lengths` and the widest filter, in the last group what its
        tokens need.
    """
    widest = max(width for width, _ in options.char_cnn.filters)
    lengths = (rows != PAD_CHAR).sum(axis=1)
    bounds = group_lengths(options)
    longest = int(lengths.max(initial=0))
    last = -(-(longest + widest) // CHARACTER_STEP) * CHARACTER_STEP
    widths = [bound + widest for bound in bounds] + [min(last, rows.shape[1])]
    member = np.searchsorted(bounds, lengths)
    groups, order, n_before = [], np.empty(len(rows), np.int64), 0
    for k, width in enumerate(widths):
        places = np.flatnonzero(member == k)
        step = GROUP_ROWS if len(places) > GROUP_ROWS_MIN else GROUP_ROWS_MIN
        n_rows = max(-(-len(places) // step) * step, step)
        group = np.full((n_rows, width), PAD_CHAR, np.int32)
        n_chars = min(width, rows.shape[1])
        group[: len(places), :n_chars] = rows[places, :n_chars]
        order[places] = n_before + np.arange(len(places))
        groups.append(group)
        n_before += n_rows
    return tuple(groups), order


def distinct_shapes(options: ModelOptions) -> Any:
    """Return the shapes of `distinct` in a batch: one, or one a group of characters."""
    if options.char_cnn is None:
        return (None,)
    widest = max(width for width, _ in options.char_cnn.filters)
    return [(None, length + widest) for length in group_lengths(options)] + [(None, None)]


def _distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows of a matrix and each row's place among them; bytes are compared."""
    rows = np.ascontiguousarray(rows)
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
    _, first, places = np.unique(keys, return_index=True, return_inverse=True)
    return rows[first], places


def batches(lengths: np.ndarray, budget: int) -> Iterator[tuple[np.ndarray, int]]:
    """Deal items into batches, the longest first, each within a budget if padded.

    Gives the places of a batch's items, and a number of rows to pad it to: few shapes come up
    then, for each of which oneDNN makes and keeps code of its own.
    """
    order = np.argsort(-lengths, kind="stable")
    while len(order):
        n_rows = max(budget // int(lengths[order[0]]), 1)
        rows, order = order[:n_rows], order[n_rows:]
        step = min(1 << (len(rows) - 1).bit_length(), 64)
        yield rows, min(-(-len(rows) // step) * step, n_rows)
