"""Windows of ids: rows fill them, and the model takes each distinct token of them once.

Training, evaluation, scoring and the cache of token vectors share these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bilm.data.characters import PAD_CHAR
from bilm.options import CharCnnOptions, ModelOptions

# Of the distinct words in a window of English 37 % are up to 6 bytes long with their marks, 77 % up
# to 9, 98 % up to 14. The character CNN then works at 0.65 of the places it had in one group.
GROUP_LENGTHS = (6, 9, 14, 24)
GROUP_ROWS, GROUP_ROWS_MIN, CHARACTER_STEP = 16, 8, 4
KEY_SUFFIX = {"forward": "", "backward": "_reverse"}  # of a window's keys, by direction

Window = dict[str, np.ndarray | bool | None]
Sentence = tuple[int, list[str]]  # its reference in the text, and its words


def empty_window(n_rows: int, n_steps: int, n_chars: int | None) -> Window:
    """Return a window of one direction that holds padding alone.

    Args:
        n_rows, n_steps: B and T.
        n_chars: C; None for a model that reads words.
    Returns: dict of `token_ids` and `next_token_id`, int32 (B, T), and `tokens_characters`, int32
        (B, T, C) or None.
    """
    shape = n_rows, n_steps
    characters = None if n_chars is None else np.full((*shape, n_chars), PAD_CHAR, np.int32)
    return {
        "token_ids": np.zeros(shape, np.int32),
        "tokens_characters": characters,
        "next_token_id": np.zeros(shape, np.int32),
    }


class Row:
    """A row of the windows: the sentence that it is in, and where in it.

    Args:
        index: of the row.
        sentences: where it takes its next sentence from.
        encode: words -> ids (n + 2,) and characters (n + 2, C) or None.
    """

    def __init__(self, index: int, sentences: Iterator[Sentence], encode: Callable):
        self.index, self.sentences, self.encode = index, sentences, encode
        self.reference, self.at, self.end = 0, 0, 0

    def go_to(self, reference: int, words: list[str], at: int) -> None:
        """Be in a sentence, before its prediction `at`."""
        self.reference, self.words, self.encoded = reference, words, None
        self.at, self.end = at, len(words) + 1

    def advance(self, n_steps: int, window: dict | None, sources: list[int] | None = None) -> int:
        """Advance by up to `n_steps` predictions, into `window` if any.

        `sources` takes the references of the sentences that were gone through.
        Returns: how many predictions there were.
        """
        done = 0
        while done < n_steps:
            if self.at == self.end:
                if (sentence := next(self.sentences, None)) is None:
                    break
                self.go_to(*sentence, 0)
            n = min(n_steps - done, self.end - self.at)
            if sources is not None:
                sources.append(self.reference)
            if window is not None:
                # Not before: the sentences of windows that are left out need no ids.
                self.encoded = self.encoded or self.encode(self.words)
                ids, chars = self.encoded
                there, here = slice(done, done + n), slice(self.at, self.at + n)
                window["token_ids"][self.index, there] = ids[here]
                window["next_token_id"][self.index, there] = ids[self.at + 1 : self.at + n + 1]
                if chars is not None:
                    window["tokens_characters"][self.index, there] = chars[here]
            self.at, done = self.at + n, done + n
        return done


class Spelled:
    """The characters of a sentence, spelled slice by slice: all at once take 200 bytes per word.

    Args:
        spell: returns the characters of words, int32 (n, C).
        words: of a sentence, with its marks.
    """

    def __init__(self, spell: Callable[[Sequence[str]], np.ndarray], words: Sequence[str]):
        self._spell, self._words = spell, words

    def __getitem__(self, steps: slice) -> np.ndarray:
        return self._spell(self._words[steps])


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
    key = "token_ids" if options.reads_words else "tokens_characters"
    tokens = np.stack([window[key + KEY_SUFFIX[d]] for d in directions])
    lead = tokens.shape[:3]
    if options.reads_words:
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
        "targets": {
            d: window["next_token_id" + KEY_SUFFIX[d]].astype(np.int32) for d in directions
        },
    }


def group_lengths(options: ModelOptions) -> list[int]:
    """Return how many characters a token of each group has at most; the last group has no bound."""
    widest, limit = widest_filter(options.char_cnn), options.char_cnn.max_characters_per_token
    return [length for length in GROUP_LENGTHS if length + widest < limit]


def widest_filter(char_cnn: CharCnnOptions) -> int:
    """Return how many characters the widest filter reads."""
    return max(width for width, _ in char_cnn.filters)


def word_lengths(rows: np.ndarray) -> np.ndarray:
    """Return how many characters words have, marks included: integer (U, C) -> (U,)."""
    return (rows != PAD_CHAR).sum(axis=1)


def needed_characters(lengths: np.ndarray, widest: int, width: int) -> np.ndarray:
    """Return how many of a row's `width` characters a CNN has to read, for words of these lengths.

    Every window past a word and the `widest` filter sees padding alone, as one before it does: what
    is cut off changes no maximum. Few widths come up, for each of which oneDNN makes code.
    """
    needed = -(-(lengths + widest) // CHARACTER_STEP) * CHARACTER_STEP
    return np.minimum(needed, width)


def grouped(rows: np.ndarray, options: ModelOptions) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Put tokens of like length together and cut the characters after them.

    See `needed_characters` for what is cut. Rows of padding fill a group up to a few sizes, for
    each of which oneDNN makes and keeps code of its own.

    Args:
        rows: integer (U, C), a token each.
        options: what shapes the model.
    Returns: the groups, int32 (U_i, C_i), and the place of each token among all their rows, (U,).
        C_i is the bound of `group_lengths` and the widest filter, in the last group what its
        tokens need.
    """
    lengths, bounds = word_lengths(rows), group_lengths(options)
    widest, limit = widest_filter(options.char_cnn), options.char_cnn.max_characters_per_token
    last = int(needed_characters(lengths.max(initial=0), widest, limit))
    widths = [bound + widest for bound in bounds] + [last]
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
    if options.reads_words:
        return (None,)
    widest = widest_filter(options.char_cnn)
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
