"""Text -> windows of ids: endless for training, every prediction once for evaluation."""

from __future__ import annotations

import heapq
import math
import os
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, count, islice, pairwise

import numpy as np

from bilm.data.shards import Shards, resolve_shards
from bilm.data.stream import Position, SentenceStream, read_references, text_changed
from bilm.data.vocabulary import UnicodeCharsVocabulary, Vocabulary
from bilm.data.windows import KEY_SUFFIX, Piece, Row, Window, empty_window
from bilm.errors import DataError

SHUFFLE_BUFFER = 65_536  # sentences held in memory for shuffling
# Training cuts long lines into pieces of MAX_PIECE predictions, and the lines of a text with fewer
# than ROW_LINES lines per row into that many pieces per row.
ROW_LINES, MAX_PIECE = 8, 1_000
SORT_BUFFER = 4_096  # sentences that are sorted by length at a time
MAX_SENTENCE_BATCH = 16_384  # most predictions in a batch of sentences, including padding
SENTENCE_WINDOW = 2_048  # predictions per window of such a batch; bounds memory

Windows = Iterator[Window]


class LMDataset:
    """A text in one direction; the order depends only on files, seed and direction.

    Args:
        filepattern: glob of the shards, plain or compressed, one tokenized sentence per line; or
            `Shards`.
        vocab: vocabulary with the marks; a `UnicodeCharsVocabulary` also gives characters.
        reverse: read each sentence from its end.
        test: read the shards once and in order, instead of endlessly.
        shuffle_on_load: permute shards and sentences in each epoch; ignored with `test`.
        seed: seed of the shuffling, together with the epoch and the direction; at least 0.
        shuffle_buffer: number of sentences in memory for shuffling.
    Raises: DataError if no file matches or the vocabulary lacks a mark.
    """

    def __init__(
        self,
        filepattern: str | os.PathLike | Shards,
        vocab: Vocabulary,
        reverse: bool = False,
        test: bool = False,
        shuffle_on_load: bool = False,
        seed: int = 0,
        shuffle_buffer: int = SHUFFLE_BUFFER,
    ):
        vocab.require_marks()
        self.shards = resolve_shards(filepattern)
        self.filepattern, self.vocab = self.shards.name, vocab
        self.max_word_length = getattr(vocab, "max_word_length", None)
        self.reverse, self.test, self.seed = reverse, test, seed
        self.direction, self.order = ("backward", -1) if reverse else ("forward", 1)
        self._shuffle_buffer = shuffle_buffer if shuffle_on_load and not test else 0

    def iter_batches(self, batch_size: int, num_steps: int) -> Windows:
        """Return windows for training. Each row continues in the next window.

        When a row's sentence ends, the row takes the next sentence from a queue that all rows
        share, or of pieces of long sentences, so that an epoch reads each prediction once, whatever
        the lines are. A last window that is not full is dropped.

        Args:
            batch_size: B, rows.
            num_steps: T, predictions of a row.
        Returns: dicts of `token_ids` and `next_token_id`, int32 (B, T), and `tokens_characters`,
            int32 (B, T, C) or None.
        Raises: DataError if a shard cannot be read, or if an endless reader finds only blank lines.
        """
        return (window for window, _ in self.iter_placed_batches(batch_size, num_steps))

    def iter_placed_batches(
        self,
        batch_size: int,
        num_steps: int,
        position: Position | None = None,
        own: range | None = None,
    ) -> Iterator[tuple[Window, Position]]:
        """Yield windows for training as `iter_batches` does, each with its position in the text.

        Args:
            position: position of a window, after which to continue; None starts with the first.
            own: rows to return; the others advance without being encoded. None returns all.
        Raises: DataError as `iter_batches` does, and if the position has another number of rows.
        """
        own = range(batch_size) if own is None else own
        mine = f"{self.direction}_"
        if position is not None:
            position = {k.removeprefix(mine): v for k, v in position.items() if k.startswith(mine)}
        stream, length = self._stream(position), self._piece_length(batch_size, num_steps)
        pieces = self._pieces(stream, length)
        rows = [Row(i - own.start, pieces, self._encode) for i in range(batch_size)]
        if position is not None:
            self._put_back(rows, position["rows"], length)
        while True:
            window = empty_window(len(own), num_steps, self.max_word_length)
            for i, row in enumerate(rows):
                if row.advance(num_steps, window if i in own else None) < num_steps:
                    return
            places = np.array([(row.reference, row.at) for row in rows], np.int64)
            parts = stream.position() | {"rows": places}
            yield window, {mine + name: part for name, part in parts.items()}

    def _put_back(self, rows: list[Row], places: np.ndarray, length: float) -> None:
        """Move each row back to its place in its sentence. Raises: DataError if it is beyond it."""
        if len(rows) != len(places):
            raise DataError(f"the position has {len(places)} rows, expected {len(rows)}")
        texts = read_references(self.shards, places[:, 0])
        for row, text, (reference, at) in zip(rows, texts, places.tolist(), strict=True):
            words = text.split()[:: self.order]
            ends = (end for end in _spans(len(words) + 1, length) if 0 <= at <= end[1])
            if (span := next(ends, None)) is None:
                raise text_changed(self.shards, reference)
            row.go_to((reference, words, *span), at)

    def iter_evaluation(
        self, batch_size: int, n_steps: int, drop_remainder: bool = False
    ) -> Windows:
        """Yield every prediction of the text once, in order; rows continue as in training.

        Each sentence is assigned to the row that ends first, or to the first of several such rows.
        The assignment therefore does not depend on `n_steps`.

        Args:
            batch_size, n_steps: B and T.
            drop_remainder: stop at the step at which the first row finds no sentence left.
        Returns: dicts as from `iter_batches`, and `mask`, bool (B, T), True for predictions, which
            are on the left. Elsewhere ids are 0 and characters are padding.
        Raises: DataError if a shard cannot be read.
        """
        sentences = self.shards.sentences()
        queues: list[deque] = [deque() for _ in range(batch_size)]
        rows = [Row(i, iter(queue.popleft, None), self._encode) for i, queue in enumerate(queues)]
        ends = [(0, i) for i in range(batch_size)]  # a heap of (step at which row i ends, i)
        last: float = math.inf  # step at which a row found no sentence left
        for start in count(0, n_steps):
            while ends[0][0] < min(start + n_steps, last):
                end, i = ends[0]
                if (sentence := next(sentences, None)) is None:
                    last = end
                    for queue in queues:
                        queue.append(None)  # end of the row's text
                else:
                    queues[i].append((0, sentence[:: self.order], 0, len(sentence) + 1))
                    heapq.heapreplace(ends, (end + len(sentence) + 1, i))
            limit = int(min(n_steps, last - start)) if drop_remainder else n_steps
            window = self._masked_window(rows, n_steps, limit)
            if not np.any(window["mask"]):
                return
            yield window

    def iter_sentence_batches(self, batch_size: int) -> Windows:
        """Yield every sentence once, one per row; sentences of similar length share a batch.

        Batches are cut into windows to bound memory.

        Args:
            batch_size: maximum number of rows; batches of long sentences are smaller.
        Returns: dicts as from `iter_evaluation`, and `first`, True for the first window of a batch;
            in the others the rows continue.
        Raises: DataError if a shard cannot be read.
        """
        sentences = self.shards.sentences()
        while block := sorted(islice(sentences, SORT_BUFFER), key=len):
            while block:
                longest = len(block[-1]) + 1
                n_rows = min(batch_size, max(1, MAX_SENTENCE_BATCH // longest))
                block, group = block[:-n_rows], block[-n_rows:]
                pieces = [(0, words[:: self.order], 0, len(words) + 1) for words in group]
                rows = [Row(i, iter([piece]), self._encode) for i, piece in enumerate(pieces)]
                n_steps = max(1, SENTENCE_WINDOW // len(rows))
                for start in range(0, longest, n_steps):
                    n_left = min(n_steps, longest - start)
                    window = self._masked_window(rows, n_left, n_left)
                    yield window | {"first": start == 0}

    def _stream(self, position: Position | None = None) -> SentenceStream:
        def make_rng(epoch: int) -> np.random.Generator:
            key = np.random.SeedSequence((self.seed, epoch, int(self.reverse)))
            return np.random.Generator(np.random.Philox(key))

        return SentenceStream(self.shards, self._shuffle_buffer, make_rng, position)

    def _piece_length(self, n_rows: int, n_steps: int) -> float:
        """Return the minimum number of predictions of a piece of a sentence."""
        if self.test:
            return math.inf
        n_predictions, n_pieces = 0, ROW_LINES * n_rows
        for n_lines, words in enumerate(self.shards.sentences(), 1):
            n_predictions += len(words) + 1
            if n_lines == n_pieces or n_predictions > n_pieces * MAX_PIECE:
                return MAX_PIECE
        return max(n_steps, math.ceil(n_predictions / n_pieces))

    def _pieces(self, stream: SentenceStream, length: float = math.inf) -> Iterator[Piece]:
        started, at = [], 0
        if stream.rest:
            reference, at = stream.rest
            started = [(reference, *read_references(self.shards, np.array([reference])))]
        while True:
            for reference, text in chain(started, stream.read_epoch()):
                words = text.split()[:: self.order]
                for first, end in _spans(len(words) + 1, length):
                    if first >= at:
                        stream.rest = (reference, end) if end <= len(words) else ()
                        yield reference, words, first, end
                at = 0
            started = []
            if self.test:
                return
            if not stream.next_epoch():
                raise DataError(f"{self.filepattern}: contains no sentence: every line is blank")

    def _encode(self, words: list[str]) -> tuple[np.ndarray, np.ndarray | None]:
        ids = self.vocab.encode(words, self.reverse, split=False)
        if not isinstance(self.vocab, UnicodeCharsVocabulary):
            return ids, None
        return ids, self.vocab.encode_chars(words, self.reverse, split=False)

    def _masked_window(self, rows: list[Row], n_steps: int, limit: int) -> Window:
        window = empty_window(len(rows), n_steps, self.max_word_length)
        lengths = np.array([row.advance(limit, window) for row in rows])
        return window | {"mask": np.arange(n_steps) < lengths[:, None]}


def _spans(n_predictions: int, length: float) -> Iterator[tuple[int, int]]:
    """Yield the first prediction and the one after the last of pieces of nearly equal length."""
    n_pieces = max(1, int(n_predictions // length))
    return pairwise(n_predictions * k // n_pieces for k in range(n_pieces + 1))


COMMON = ("mask", "first")  # keys whose values are equal in both directions


class BidirectionalLMDataset:
    """A forward and a backward `LMDataset`; keys of the latter have the suffix `_reverse`.

    Each direction shuffles independently. Evaluation reads both in order, so that `mask` is common.
    Arguments and errors are those of `LMDataset`.
    """

    def __init__(
        self,
        filepattern: str | os.PathLike | Shards,
        vocab: Vocabulary,
        test: bool = False,
        shuffle_on_load: bool = False,
        seed: int = 0,
    ):
        shards = resolve_shards(filepattern)
        self.readers = [
            LMDataset(shards, vocab, reverse, test, shuffle_on_load, seed)
            for reverse in (False, True)
        ]
        self.shards, self.filepattern, self.vocab = shards, shards.name, vocab
        self.max_word_length = self.readers[0].max_word_length

    def iter_batches(self, batch_size: int, num_steps: int) -> Windows:
        """Return windows for training: see `LMDataset.iter_batches`."""
        return (window for window, _ in self.iter_placed_batches(batch_size, num_steps))

    def iter_placed_batches(
        self,
        batch_size: int,
        num_steps: int,
        position: Position | None = None,
        own: range | None = None,
    ) -> Iterator[tuple[Window, Position]]:
        """Yield windows for training with their positions: see `LMDataset.iter_placed_batches`."""
        arguments = batch_size, num_steps, position, own
        both = (r.iter_placed_batches(*arguments) for r in self.readers)
        for (forward, one), (backward, other) in zip(*both, strict=True):
            yield _join(forward, backward), one | other

    def iter_evaluation(
        self, batch_size: int, n_steps: int, drop_remainder: bool = False
    ) -> Windows:
        """Return every prediction of the text once: see `LMDataset.iter_evaluation`."""
        return _merge(r.iter_evaluation(batch_size, n_steps, drop_remainder) for r in self.readers)

    def iter_sentence_batches(self, batch_size: int) -> Windows:
        """Return whole sentences; a row contains the same sentence in both directions: see
        `LMDataset`."""
        return _merge(r.iter_sentence_batches(batch_size) for r in self.readers)


Reader = LMDataset | BidirectionalLMDataset


def _merge(readers: Iterable[Windows]) -> Windows:
    return (_join(forward, backward) for forward, backward in zip(*readers, strict=True))


def _join(forward: Window, backward: Window) -> Window:
    return forward | {k + KEY_SUFFIX["backward"]: v for k, v in backward.items() if k not in COMMON}
