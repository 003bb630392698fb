"""Text -> windows of ids: endless for training, every prediction once for evaluation."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, count, pairwise
from typing import Any, NamedTuple

import numpy as np

from bilm.data.alphabets import PAD_CHAR
from bilm.data.marks import BOS, EOS
from bilm.data.numbered_words import NumberedWords
from bilm.data.shards import TextFiles, resolve_shards
from bilm.data.stream import Position, SentenceStream, read_references, text_changed
from bilm.data.vocabulary import Vocabulary
from bilm.data.windows import KEY_SUFFIX
from bilm.errors import DataError

SHUFFLE_BUFFER = 65_536  # sentences held in memory for shuffling
# Training cuts lines into pieces of MAX_PIECE predictions, and those of a text with fewer than
# ROW_LINES lines per row into that many pieces per row.
ROW_LINES = 8
MAX_PIECE = 1_000

Window = dict[str, Any]  # arrays by key; None for the characters of a model of words
# A part of a sentence in a row of a window: its words, and the word that follows them.
Part = tuple[list[str], str]
Windows = Iterator[Window]


class Piece(NamedTuple):
    """A piece of a sentence, whose n words, in reading order and between marks, have n + 1
    predictions."""

    reference: int  # of the sentence in the text, see `stream`
    tokens: list[str]  # of the piece, and the one after it
    first: int  # prediction
    end: int  # one after the last prediction


class LMDataset:
    """A text in one direction; the order depends only on files, seed and direction.

    Args:
        filepattern: `Shards`, or their glob, plain or compressed, one tokenized sentence per line.
        vocab: vocabulary with the marks; a `UnicodeCharsVocabulary` also gives characters.
        reverse, test: read each sentence from its end; read the shards once and in order.
        shuffle_on_load: permute shards and sentences in each epoch; ignored with `test`.
        seed: seed of the shuffling, together with the epoch and the direction; at least 0.
    Raises: DataError if no file matches or the vocabulary lacks a mark.
    """

    def __init__(
        self,
        filepattern: TextFiles,
        vocab: Vocabulary,
        reverse: bool = False,
        test: bool = False,
        shuffle_on_load: bool = False,
        seed: int = 0,
    ):
        vocab.require_marks()
        self.shards = resolve_shards(filepattern)
        self.vocab = vocab
        self.words = NumberedWords(vocab)
        self.max_word_length: int | None = getattr(vocab, "max_word_length", None)
        self.reverse = reverse
        # The directions that are read, and what the keys of their windows end with
        self.suffixes = {"backward" if reverse else "forward": ""}
        self.test = test
        self.seed = seed
        self._shuffle_buffer = SHUFFLE_BUFFER if shuffle_on_load and not test else 0

    def iter_batches(self, batch_size: int, num_steps: int) -> Windows:
        """Return windows for training. Each row continues in the next window. When its sentence, or
        a piece of a long one, ends, it takes the next one from a queue that all rows share. A last
        window that is not full is dropped.

        Returns: dicts of int32 `token_ids` and `next_token_id` (batch_size, num_steps), and
            `tokens_characters` (batch_size, num_steps, C) or None.
        Raises: DataError if a shard cannot be read, or if an endless reader finds only blank lines.
        """
        placed = self.iter_placed_batches(batch_size, num_steps)
        return (self._spelled(window) for window, _ in placed)

    def iter_placed_batches(
        self,
        batch_size: int,
        num_steps: int,
        position: Position | None = None,
        returned: range | None = None,
    ) -> Iterator[tuple[Window, Position]]:
        """Yield windows for training as `iter_batches` does, each with its position in the text,
        after which reading continues if it is given. Instead of characters the windows contain
        `word_numbers`, int64 (B, T), of `self.words`, valid until the next window is read.
        `returned`: numbers of the rows to encode and return, None for all. Raises: DataError, also
        for a position with other rows."""
        returned = range(batch_size) if returned is None else returned
        how = batch_size, num_steps, position, returned
        by_direction = [self._training(direction, *how) for direction in self.suffixes]
        for placed in zip(*by_direction, strict=True):
            windows, positions = zip(*placed, strict=True)
            yield _merged(windows), _merged(positions)
            self.words.trim()

    def _training(
        self, direction: str, n_rows: int, n_steps: int, position: Position | None, returned: range
    ) -> Iterator[tuple[Window, Position]]:
        """Yield the windows of one direction: see `iter_placed_batches`."""
        start: Position | None = None  # the arrays of the position that belong to this direction
        if position is not None:
            start = {name: position[f"{direction}_{name}"] for name in ("reader", "buffer", "rows")}

        key = self.seed, int(direction == "backward")
        stream = SentenceStream(self.shards, self._shuffle_buffer, key, start)
        length = self._piece_length(n_rows, n_steps)
        pieces = self._pieces(stream, length, direction)
        rows = [Row(pieces) for _ in range(n_rows)]
        if start is not None:
            self._put_back(rows, start["rows"], length, direction)

        while True:
            parts: list[Part] = []
            for i, row in enumerate(rows):
                if row.advance(n_steps, parts if i in returned else None) < n_steps:
                    return
            window = self._window(parts, (len(returned), n_steps), direction)
            places = np.array([(row.piece.reference, row.at) for row in rows], np.int64)
            arrays = stream.position() | {"rows": places}
            yield window, {f"{direction}_{name}": array for name, array in arrays.items()}

    def _put_back(self, rows: list[Row], places: np.ndarray, length: float, direction: str) -> None:
        """Move each row back to its place in its sentence. Raises: DataError if it has none."""
        if len(rows) != len(places):
            raise DataError(f"the position has {len(places)} rows, expected {len(rows)}")
        texts = read_references(self.shards, places[:, 0])
        for row, text, (reference, at) in zip(rows, texts, places.tolist(), strict=True):
            pieces = _cut(reference, _tokens(text.split(), direction), length)
            reaching = [piece for piece in pieces if piece.end >= at]
            if not reaching:
                raise text_changed(self.shards, reference)
            row.piece, row.at = reaching[0], at

    def iter_evaluation(
        self, batch_size: int, n_steps: int, drop_remainder: bool = False
    ) -> Windows:
        """Yield every prediction of the text once, in order. Each sentence is assigned to the row
        that ends first, whatever `n_steps` is. With `drop_remainder`, all rows stop at the step at
        which the first one finds no sentence left.

        Returns: dicts as from `iter_batches`, and `mask`, bool (B, T), True for predictions, which
            are on the left. Elsewhere ids are 0 and characters are padding.
        Raises: DataError if a shard cannot be read.
        """
        how = batch_size, n_steps, drop_remainder
        by_direction = [self._evaluation(direction, *how) for direction in self.suffixes]
        return map(_merged, zip(*by_direction, strict=True))

    def _evaluation(
        self, direction: str, n_rows: int, n_steps: int, drop_remainder: bool
    ) -> Windows:
        """Yield the windows of one direction: see `iter_evaluation`."""
        sentences = self.shards.sentences()
        queues: list[deque[Piece | None]] = [deque() for _ in range(n_rows)]
        rows = [Row(iter(queue.popleft, None)) for queue in queues]
        ends = [0] * n_rows  # steps at which the rows end
        last: float = math.inf  # step at which a row found no sentence left
        for start in count(0, n_steps):
            # Assign sentences to the row that ends first, until no row ends in this window.
            while (end := min(ends)) < min(start + n_steps, last):
                sentence = next(sentences, None)
                if sentence is None:
                    last = end
                    for queue in queues:
                        queue.append(None)  # end of the row's text
                else:
                    i = ends.index(end)
                    n_predictions = len(sentence) + 1
                    queues[i].append(Piece(0, _tokens(sentence, direction), 0, n_predictions))
                    ends[i] += n_predictions

            limit = int(min(n_steps, last - start)) if drop_remainder else n_steps
            parts: list[Part] = []
            mask: np.ndarray = np.zeros((n_rows, n_steps), bool)
            for i, row in enumerate(rows):
                n = row.advance(limit, parts)
                mask[i, :n] = True
                if n < n_steps:
                    parts.append(([BOS] * (n_steps - n), BOS))  # masked
            if not mask.any():
                return
            window = self._spelled(self._window(parts, mask.shape, direction))
            self.words.trim()
            for name, array in window.items():
                if array is not None:
                    array[~mask] = PAD_CHAR if name.startswith("tokens_characters") else 0
            yield window | {"mask": mask}

    def _piece_length(self, n_rows: int, n_steps: int) -> float:
        """Return the minimum number of predictions of a piece of a sentence."""
        if self.test:
            return math.inf
        n_pieces = ROW_LINES * n_rows  # of a text with fewer lines
        n_predictions = 0
        for n_lines, words in enumerate(self.shards.sentences(), 1):
            n_predictions += len(words) + 1
            if n_lines == n_pieces or n_predictions > n_pieces * MAX_PIECE:
                return MAX_PIECE
        return max(n_steps, math.ceil(n_predictions / n_pieces))

    def _pieces(self, stream: SentenceStream, length: float, direction: str) -> Iterator[Piece]:
        """Yield the pieces of the text from the position of a stream, which moves with them."""
        while True:
            for reference, text in stream.read_epoch():
                _, at = stream.rest or (reference, 0)
                pieces = _cut(reference, _tokens(text.split(), direction), length)
                for piece in pieces:
                    if piece.first >= at:
                        is_last = piece is pieces[-1]
                        stream.rest = () if is_last else (reference, piece.end)
                        yield piece
                stream.rest = ()
            if self.test:
                return
            if not stream.next_epoch():
                raise DataError(f"{self.shards.name}: contains no sentence: every line is blank")

    def _window(self, parts: list[Part], shape: tuple[int, ...], direction: str) -> Window:
        """Return a window of the parts of its rows: see `iter_placed_batches`."""
        suffix = self.suffixes[direction]
        numbers = self.words(list(chain.from_iterable(words for words, _ in parts)))
        ids = self.words.ids[numbers]
        next_ids = np.roll(ids, -1)
        ends = np.cumsum([len(words) for words, _ in parts])
        next_ids[ends - 1] = self.vocab.known_ids([following for _, following in parts])
        return {
            f"token_ids{suffix}": ids.reshape(shape),
            f"word_numbers{suffix}": numbers.reshape(shape),
            f"next_token_id{suffix}": next_ids.reshape(shape),
        }

    def _spelled(self, window: Window) -> Window:
        """Return a window with characters instead of word numbers."""
        spelled: Window = {}
        characters = self.words.characters
        for name, array in window.items():
            if name.startswith("word_numbers"):
                name = name.replace("word_numbers", "tokens_characters")
                array = None if characters is None else characters[array].astype(np.int32)
            spelled[name] = array
        return spelled


def _merged(directions: Iterable[dict]) -> dict:
    return {key: value for content in directions for key, value in content.items()}


def _tokens(words: list[str], direction: str) -> list[str]:
    """Return the words of a sentence in reading order, between its marks."""
    return [EOS, *reversed(words), BOS] if direction == "backward" else [BOS, *words, EOS]


def _cut(reference: int, tokens: list[str], length: float) -> list[Piece]:
    """Return the pieces of a sentence, of nearly equal length."""
    n_predictions = len(tokens) - 1
    n_pieces = max(int(n_predictions // length), 1)
    places = [n_predictions * k // n_pieces for k in range(n_pieces + 1)]
    pieces = []
    for first, end in pairwise(places):
        pieces.append(Piece(reference, tokens[first : end + 1], first, end))
    return pieces


class BidirectionalLMDataset(LMDataset):
    """A text in both directions, which are shuffled independently; see `LMDataset` for arguments.
    Keys of the backward windows end with `_reverse`. In evaluation, `mask` is common."""

    def __init__(
        self,
        filepattern: TextFiles,
        vocab: Vocabulary,
        test: bool = False,
        shuffle_on_load: bool = False,
        seed: int = 0,
    ):
        super().__init__(filepattern, vocab, False, test, shuffle_on_load, seed)
        self.suffixes = KEY_SUFFIX


class Row:
    """A row of the windows; its position is before prediction `at` of a sentence, in a piece."""

    def __init__(self, pieces: Iterator[Piece | None]):
        self._pieces = pieces
        self.piece = Piece(0, [], 0, 0)
        self.at = 0

    def advance(self, n_steps: int, parts: list[Part] | None) -> int:
        """Advance by up to `n_steps` predictions; add their words to `parts`, unless the window
        lacks this row; return their number."""
        done = 0
        while done < n_steps:
            if self.at == self.piece.end:
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self.piece, self.at = piece, piece.first
            n = min(n_steps - done, self.piece.end - self.at)
            if parts is not None:
                start = self.at - self.piece.first
                tokens = self.piece.tokens
                parts.append((tokens[start : start + n], tokens[start + n]))
            self.at += n
            done += n
        return done
