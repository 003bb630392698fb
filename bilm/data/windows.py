"""Fills the rows of windows with ids, and lists the distinct tokens of a window, so that each is
encoded once.

Training, evaluation and scoring share these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bilm.data.vocabulary import PAD_CHAR, needed_characters
from bilm.options.model_options import CharCnnOptions, ModelOptions

# Of the distinct words in a window of English text, 37 % have at most 6 bytes including their
# marks, 77 % at most 9, and 98 % at most 14. With these groups, the character CNN reads only 64 %
# of the positions.
GROUP_LENGTHS = (6, 9, 14, 24)
GROUP_ROWS, GROUP_ROWS_MIN = 16, 8
KEY_SUFFIX = {"forward": "", "backward": "_reverse"}  # suffix of a window's keys by direction

Window = dict[str, np.ndarray | bool | None]
Sentence = tuple[int, list[str]]  # reference in the text (see `stream`), words


def empty_window(n_rows: int, n_steps: int, n_chars: int | None) -> Window:
    """Return a window of one direction that contains only padding.

    Args:
        n_rows, n_steps: B and T.
        n_chars: C; None for a model that reads words.
    Returns: dict of `token_ids` and `next_token_id`, int32 (B, T), and `tokens_characters`, int32
        (B, T, C) or None.
    """
    shape = n_rows, n_steps
    characters: np.ndarray | None = None
    if n_chars is not None:
        characters = np.full((*shape, n_chars), PAD_CHAR, np.int32)
    return {
        "token_ids": np.zeros(shape, np.int32),
        "tokens_characters": characters,
        "next_token_id": np.zeros(shape, np.int32),
    }


class Row:
    """A row of the windows and its position in the current sentence.

    Args:
        index: index of the row.
        sentences: source of the next sentences.
        encode: words -> ids (n + 2,) and characters (n + 2, C) or None.
    """

    def __init__(self, index: int, sentences: Iterator[Sentence | None], encode: Encode):
        self.index, self.sentences, self.encode = index, sentences, encode
        self.reference, self.at, self.end = 0, 0, 0
        self.words: list[str] = []
        self.encoded: Encoded | None = None

    def go_to(self, reference: int, words: list[str], at: int) -> None:
        """Move to the position before prediction `at` of a sentence."""
        self.reference, self.words, self.encoded = reference, words, None
        self.at, self.end = at, len(words) + 1

    def advance(self, n_steps: int, window: dict | None) -> int:
        """Advance by up to `n_steps` predictions and write them into `window`, if given.

        Returns: the number of predictions.
        """
        done = 0
        while done < n_steps:
            if self.at == self.end:
                if (sentence := next(self.sentences, None)) is None:
                    break
                self.go_to(*sentence, 0)
            n = min(n_steps - done, self.end - self.at)
            if window is not None:
                # Sentences are encoded here, because skipped windows do not need ids.
                self.encoded = self.encoded or self.encode(self.words)
                ids, chars = self.encoded
                there, here = slice(done, done + n), slice(self.at, self.at + n)
                window["token_ids"][self.index, there] = ids[here]
                window["next_token_id"][self.index, there] = ids[self.at + 1 : self.at + n + 1]
                if chars is not None:
                    window["tokens_characters"][self.index, there] = chars[here]
            self.at, done = self.at + n, done + n
        return done


Encoded = tuple[np.ndarray, np.ndarray | None]
Encode = Callable[[list[str]], Encoded]


def model_batch(window: dict, options: ModelOptions) -> dict:
    """Replace a window's tokens with the list of its distinct tokens and each token's index in this
    list.

    The encoder then encodes each distinct token once. The result is the same, because the vector of
    a token does not depend on its position. 43 % of the tokens in 32 x 20 windows of two directions
    are distinct.

    Args:
        window: a window of `LMDataset.iter_batches`.
        options: options of the model.
    Returns: dict of `distinct`, int32 (U,) or groups of characters from `grouped`; and for each
        direction `places` and `targets`, int32 (B, T).
    """
    directions = options.directions
    key = "token_ids" if options.char_cnn is None else "tokens_characters"
    tokens = np.stack([window[key + KEY_SUFFIX[d]] for d in directions])
    lead, tokens = tokens.shape[:3], tokens.reshape(-1, *tokens.shape[3:])
    if options.char_cnn is None:
        distinct, places = np.unique(tokens, return_inverse=True)
        distinct = distinct.astype(np.int32)
    else:
        # Rows are compared as bytes.
        rows = np.ascontiguousarray(tokens, np.int16)
        keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
        _, first, places = np.unique(keys, return_index=True, return_inverse=True)
        distinct, order = grouped(rows[first], options.char_cnn)
        places = order[places]
    places = places.astype(np.int32).reshape(lead)
    return {
        "distinct": distinct,
        "places": dict(zip(directions, places, strict=True)),
        "targets": {
            d: window["next_token_id" + KEY_SUFFIX[d]].astype(np.int32) for d in directions
        },
    }


def _groups(char_cnn: CharCnnOptions) -> tuple[list[int], int]:
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
    lengths, (bounds, widest) = (rows != PAD_CHAR).sum(axis=1), _groups(char_cnn)
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


def distinct_shapes(options: ModelOptions) -> Any:
    """Return the shape of `distinct` in a batch, or its shape for each group of characters."""
    if options.char_cnn is None:
        return (None,)
    bounds, widest = _groups(options.char_cnn)
    return [(None, bound + widest) for bound in bounds] + [(None, None)]
