"""Windows -> their distinct tokens, in groups of similar length. A step encodes each token once.
The traced step needs the same number of groups in each window; `bilm.inference.words` does not."""

import numpy as np

from bilm.data.alphabets import PAD_CHAR
from bilm.options.model_options import CharCnnOptions, ModelOptions

KEY_SUFFIX = {"forward": "", "backward": "_reverse"}  # suffix of a window's keys by direction

CHARACTER_STEP = 4  # lengths of the rows that a character CNN reads are its multiples
# In English, 37 % of the distinct words of a window have at most 6 bytes with their marks, 77 % at
# most 9, and 98 % at most 14, so the character CNN reads 64 % of the positions.
GROUP_LENGTHS = (6, 9, 14, 24)
GROUP_ROWS = 16  # numbers of rows are multiples
GROUP_ROWS_MIN = 8  # of small groups


def model_batch(window: dict, options: ModelOptions, characters: np.ndarray | None = None) -> dict:
    """Return the distinct tokens of a window and each token's index among them: a dict of
    `distinct`, (U,) or groups of characters from `grouped`; and for each direction `places` and
    `targets`, (B, T); all int64, because TensorFlow keeps int32 in the host's memory if it computes
    on a GPU. `characters`: of each word number, of a window that contains numbers instead of
    characters."""
    # The tokens of all directions one after another.
    directions = options.directions
    key = "tokens_characters" if characters is None else "word_numbers"
    if options.char_cnn is None:
        key = "token_ids"
    tokens = np.stack([window[key + KEY_SUFFIX[d]] for d in directions])  # directions, B, T (, C)
    lead = tokens.shape[:3]
    tokens = tokens.reshape(-1, *tokens.shape[3:])  # N (, C)

    distinct: np.ndarray | tuple[np.ndarray, ...]
    if options.char_cnn is None:
        ids, places = np.unique(tokens, return_inverse=True)  # U and N
        distinct = ids.astype(np.int64)
    else:
        if characters is None:
            rows, places = _distinct_rows(tokens)  # U, C and N
        else:
            numbers, places = np.unique(tokens, return_inverse=True)
            rows, order = _distinct_rows(characters[numbers])  # those of long words may be the same
            places = order[places]
        distinct, order = grouped(rows, options.char_cnn)
        places = order[places]
    places = places.reshape(lead)

    targets = {d: window["next_token_id" + KEY_SUFFIX[d]].astype(np.int64) for d in directions}
    of_directions = dict(zip(directions, places, strict=True))
    return {"distinct": distinct, "places": of_directions, "targets": targets}


def _distinct_rows(tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows of characters, int16 (U, C), and the place of each of them (N,)."""
    # Rows are compared as bytes, which is faster than as numbers.
    rows = np.ascontiguousarray(tokens, np.int16)
    as_bytes = rows.view(f"V{2 * rows.shape[1]}").reshape(-1)  # two bytes per character
    _, first, places = np.unique(as_bytes, return_index=True, return_inverse=True)
    return rows[first], places


def needed_characters(lengths: np.ndarray, widest: int, width: int) -> np.ndarray:
    """Return how many of `width` characters the CNN must read for words of these lengths. Of the
    windows of the `widest` filter that contain only padding, one decides the maximum. The result is
    rounded up, because oneDNN compiles code for each width."""
    needed: np.ndarray = -(-(lengths + widest) // CHARACTER_STEP) * CHARACTER_STEP
    return np.minimum(needed, width)


def group_lengths(char_cnn: CharCnnOptions) -> tuple[list[int], int]:
    """Return the maximum token length of each group but the last, and the widest filter's width."""
    widest = max(width for width, _ in char_cnn.filters)
    limit = char_cnn.max_characters_per_token
    return [length for length in GROUP_LENGTHS if length + widest < limit], widest


def grouped(
    rows: np.ndarray, char_cnn: CharCnnOptions
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Group tokens, characters (U, C), by length, and truncate the padding after them: return
    int64 (U_i, C_i), and the place of each token among the rows of all groups, int64 (U,)."""
    # The width of each group: the longest token that may be in it, and one window of padding.
    max_lengths, widest = group_lengths(char_cnn)
    lengths = (rows != PAD_CHAR).sum(axis=1)  # U
    longest = lengths.max(initial=0)
    last_width = needed_characters(longest, widest, char_cnn.max_characters_per_token)
    widths = [length + widest for length in max_lengths] + [int(last_width)]

    group_of = np.searchsorted(max_lengths, lengths)  # U
    places: np.ndarray = np.empty(len(rows), np.int64)  # U
    groups = []
    n_before = 0
    for k, width in enumerate(widths):
        members = np.flatnonzero(group_of == k)
        places[members] = n_before + np.arange(len(members))

        # There are only a few numbers of rows, because oneDNN compiles and caches code for each.
        step = GROUP_ROWS if len(members) > GROUP_ROWS_MIN else GROUP_ROWS_MIN
        n_rows = max(-(-len(members) // step) * step, step)
        tokens = rows[members, :width]
        group: np.ndarray = np.full((n_rows, width), PAD_CHAR, np.int64)
        group[: len(members), : tokens.shape[1]] = tokens
        groups.append(group)
        n_before += n_rows
    return tuple(groups), places
