"""Groups the distinct words of a window by length, so that little padding is computed.

The traced training step needs the same number of groups in each window. Inference, whose number of
batches depends on the text, uses `bilm.inference.grouping`.
"""

from __future__ import annotations

import numpy as np

from bilm.data.vocabulary import PAD_CHAR
from bilm.options.model_options import CharCnnOptions

CHARACTER_STEP = 4  # lengths of the rows that a character CNN reads are its multiples
# Of the distinct words in a window of English text, 37 % have at most 6 bytes including their
# marks, 77 % at most 9, and 98 % at most 14. With these groups, the character CNN reads only 64 %
# of the positions.
GROUP_LENGTHS = (6, 9, 14, 24)
GROUP_ROWS, GROUP_ROWS_MIN = 16, 8


def needed_characters(lengths: np.ndarray, widest: int, width: int) -> np.ndarray:
    """Return how many of the `width` characters of a row the CNN must read for words of these
    lengths.

    All windows of the `widest` filter that start after the word contain only padding. One of them
    is read, so omitting the others does not change the maximum. The result is rounded up, because
    oneDNN compiles code for each width.
    """
    needed: np.ndarray = -(-(lengths + widest) // CHARACTER_STEP) * CHARACTER_STEP
    return np.minimum(needed, width)


def group_lengths(char_cnn: CharCnnOptions) -> tuple[list[int], int]:
    """Return the maximum length of the tokens of each group except the last, whose length is
    not limited, and the width of the widest filter."""
    widest = max(width for width, _ in char_cnn.filters)
    limit = char_cnn.max_characters_per_token
    return [length for length in GROUP_LENGTHS if length + widest < limit], widest


def grouped(
    rows: np.ndarray, char_cnn: CharCnnOptions
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Group tokens by length and truncate the padding after them: see `needed_characters`.

    Each group is padded with empty rows to one of a few sizes, because oneDNN compiles and caches
    code for each size.

    Args:
        rows: characters of a token per row, integer (U, C).
    Returns: the groups, int32 (U_i, C_i), and the place of each token among the rows of all groups,
        (U,). C_i is the maximum length of a token plus the widest filter; in the last group, it is
        the width that its longest token requires.
    """
    lengths, (bounds, widest) = (rows != PAD_CHAR).sum(axis=1), group_lengths(char_cnn)
    last = needed_characters(lengths.max(initial=0), widest, char_cnn.max_characters_per_token)
    widths = [bound + widest for bound in bounds] + [int(last)]
    member = np.searchsorted(bounds, lengths)
    order: np.ndarray = np.empty(len(rows), np.int64)
    groups, n_before = [], 0
    for k, width in enumerate(widths):
        places = np.flatnonzero(member == k)
        step = GROUP_ROWS if len(places) > GROUP_ROWS_MIN else GROUP_ROWS_MIN
        n_rows = max(-(-len(places) // step) * step, step)
        group: np.ndarray = np.full((n_rows, width), PAD_CHAR, np.int32)
        n_chars = min(width, rows.shape[1])
        group[: len(places), :n_chars] = rows[places, :n_chars]
        order[places] = n_before + np.arange(len(places))
        groups.append(group)
        n_before += n_rows
    return tuple(groups), order
