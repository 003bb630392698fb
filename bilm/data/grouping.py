"""Groups the distinct words of a window by length, so that little padding is computed.

The traced training step needs the same number of groups in each window. Inference, whose number of
batches depends on the text, uses `bilm.inference.words`.
"""

from __future__ import annotations

import numpy as np

from bilm.data.alphabets import PAD_CHAR
from bilm.options.model_options import CharCnnOptions

CHARACTER_STEP = 4  # lengths of the rows that a character CNN reads are its multiples
# Of the distinct words in a window of English text, 37 % have at most 6 bytes including their
# marks, 77 % at most 9, and 98 % at most 14. With these groups, the character CNN reads only 64 %
# of the positions.
GROUP_LENGTHS = (6, 9, 14, 24)
GROUP_ROWS, GROUP_ROWS_MIN = 16, 8  # numbers of rows are multiples; small groups have the minimum


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

    Args:
        rows: characters of a token per row, integer (U, C).
    Returns: the groups, int32 (U_i, C_i), and the place of each token among the rows of all groups,
        (U,). C_i is the maximum length of a token plus the widest filter; in the last group, it is
        the width that its longest token requires.
    """
    # The width of each group: the longest token that may be in it, and one window of padding.
    max_lengths, widest = group_lengths(char_cnn)
    lengths = (rows != PAD_CHAR).sum(axis=1)  # U
    longest = lengths.max(initial=0)
    last_width = needed_characters(longest, widest, char_cnn.max_characters_per_token)
    widths = [length + widest for length in max_lengths] + [int(last_width)]

    # The rows of each group, and where each token is among all of them.
    group_of = np.searchsorted(max_lengths, lengths)  # U
    places: np.ndarray = np.empty(len(rows), np.int64)  # U
    groups, n_before = [], 0
    for k, width in enumerate(widths):
        members = np.flatnonzero(group_of == k)
        group = _padded(rows[members, :width], width)
        places[members] = n_before + np.arange(len(members))
        groups.append(group)
        n_before += len(group)
    return tuple(groups), places


def _padded(rows: np.ndarray, width: int) -> np.ndarray:
    """Return a group, int32 (U_i, C_i), with padding after its tokens and empty rows after them.

    There are only a few numbers of rows, because oneDNN compiles and caches code for each.
    """
    step = GROUP_ROWS if len(rows) > GROUP_ROWS_MIN else GROUP_ROWS_MIN
    n_rows = max(-(-len(rows) // step) * step, step)
    group: np.ndarray = np.full((n_rows, width), PAD_CHAR, np.int32)
    group[: len(rows), : rows.shape[1]] = rows
    return group
