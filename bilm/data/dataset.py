"""Text shards -> windows of ids for training, and every prediction once for evaluation."""

from __future__ import annotations

import heapq
import math
import os
from collections import deque
from collections.abc import Iterator
from itertools import count, islice

import numpy as np

from bilm.data.shards import Shards, resolve_shards
from bilm.data.stream import Position, SentenceStream, Trace, read_references
from bilm.data.vocabulary import BOS, EOS, Vocabulary
from bilm.data.windows import Row, Sentence, Spelled, Window, empty_window
from bilm.errors import DataError

SHUFFLE_BUFFER = 65_536  # sentences; the memory that shuffling takes
SORT_BUFFER = 4_096  # sentences that are sorted by length together
MAX_SENTENCE_BATCH = 16_384  # predictions, padding included, of sentences that run side by side
SENTENCE_WINDOW = 2_048  # predictions of them that are made at once; bounds memory
LONG_SENTENCE = 4_096  # words; longer ones are spelled piece by piece


Windows = Iterator[Window]


class LMDataset:
    """One direction's stream of text, a function of files, seed and direction alone.

    Args:
        filepattern: glob of the shards, plain or gzip, one tokenized sentence a line; or `Shards`.
        vocab: with the marks; a `UnicodeCharsVocabulary` for characters too.
        reverse: give each sentence from its end.
        test: read the shards once and in order, not epoch after epoch without end.
        shuffle_on_load: permute shards and sentences, each epoch anew; not with `test`.
        seed: keys the shuffling, together with the epoch and the direction; not negative.
        shuffle_buffer: how many sentences wait in memory to be drawn.
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
        self.direction = "backward" if reverse else "forward"
        self._shuffle_buffer = shuffle_buffer if shuffle_on_load and not test else 0

    def get_sentence(self) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Return each sentence's ids, int32 (n + 2,), and characters, int32 (n + 2, C) or None.

        Raises: DataError if a shard is bad, or if the shards of an endless reader are all blank.
        """
        return (self._encode(words, True) for _, words in self._sentences(self._stream()))

    def iter_batches(self, batch_size: int, num_steps: int, first_batch: int = 0) -> Windows:
        """Return windows for training, every row a stream that continues in the next window.

        A row takes the next sentence from the common queue whenever its own runs out, row after
        row. The last window is not given if it is not full.

        Args:
            batch_size: B, rows.
            num_steps: T, predictions of a row.
            first_batch: windows to leave out; that is much faster than to make and drop them.
        Returns: dicts of `token_ids` and `next_token_id`, int32 (B, T), and `tokens_characters`,
            int32 (B, T, C) or None.
        Raises: DataError as `get_sentence` does, or if a count is below 1.
        """
        return (w for w, *_ in self._iter_windows(batch_size, num_steps, first_batch))

    def iter_placed_batches(
        self,
        batch_size: int,
        num_steps: int,
        position: Position | None = None,
        first_batch: int = 0,
        own: range | None = None,
    ) -> Iterator[tuple[Window, Trace]]:
        """Yield windows for training as `iter_batches` does, each with its place in the text.

        Args:
            batch_size, num_steps: B and T.
            position: of the window after which to continue; None starts from the first.
            first_batch: windows to leave out.
            own: the rows to give; the others advance without being encoded. None gives all.
        Raises: DataError as `iter_batches` does, and if the position has other rows than B.
        """
        mine = f"{self.direction}_"
        if position is not None:
            position = {k.removeprefix(mine): v for k, v in position.items() if k.startswith(mine)}
        windows = self._iter_windows(batch_size, num_steps, first_batch, position, own)
        for window, sources, stream, rows in windows:
            places = np.array([(row.reference, row.at) for row in rows], np.int64)
            parts = stream.position() | {"rows": places}
            yield window, Trace({mine + name: part for name, part in parts.items()}, sources)

    def _iter_windows(self, batch_size, num_steps, first_batch=0, position=None, own=None):
        _check_counts(batch_size, num_steps)
        own = range(batch_size) if own is None else own
        stream = self._stream(position)
        sentences = self._sentences(stream)
        rows = [Row(i - own.start, sentences, self._encode) for i in range(batch_size)]
        if position is not None:
            self._put_back(rows, position["rows"])
        for i in count():
            window = None
            if i >= first_batch:
                window = empty_window(len(own), num_steps, self.max_word_length)
            sources: list[int] = []
            for i, row in enumerate(rows):
                if row.advance(num_steps, window if i in own else None, sources) < num_steps:
                    return
            if window is not None:
                yield window, sources, stream, rows

    def _put_back(self, rows: list[Row], places: np.ndarray) -> None:
        """Put each row into its sentence again."""
        if len(rows) != len(places):
            raise DataError(f"the position is that of {len(places)} rows, not of {len(rows)}")
        texts = read_references(self.shards, places[:, 0])
        for row, text, (reference, at) in zip(rows, texts, places.tolist(), strict=True):
            row.go_to(reference, text.split(), at)

    def iter_evaluation(
        self, batch_size: int, n_steps: int, drop_remainder: bool = False
    ) -> Windows:
        """Yield every prediction of the text once, in order; rows are streams as in training.

        The next sentence goes to the row that runs out first, of several to the first: the text
        lies in the rows as with windows of one step, whatever `n_steps`.

        Args:
            batch_size, n_steps: B and T.
            drop_remainder: end at the step at which the first row finds no sentence left.
        Returns: dicts as from `iter_batches`, and `mask`, bool (B, T): what is there, on the left.
            Elsewhere ids are 0 and characters are padding.
        Raises: DataError if a shard is bad or a count is below 1.
        """
        _check_counts(batch_size, n_steps)
        sentences = enumerate(self.shards.sentences())
        queues: list[deque] = [deque() for _ in range(batch_size)]
        rows = [Row(i, iter(queue.popleft, None), self._encode) for i, queue in enumerate(queues)]
        ends = [(0, i) for i in range(batch_size)]  # a heap: the step at which row i runs out
        last = math.inf  # the step at which a row found no sentence left
        for start in count(0, n_steps):
            while ends[0][0] < min(start + n_steps, last):
                end, i = ends[0]
                if (sentence := next(sentences, None)) is None:
                    last = end
                    for queue in queues:
                        queue.append(None)  # where the row's text ends
                else:
                    queues[i].append(sentence)
                    heapq.heapreplace(ends, (end + len(sentence[1]) + 1, i))
            limit = min(n_steps, last - start) if drop_remainder else n_steps
            window = self._masked_window(rows, n_steps, limit)
            if not window["mask"].any():
                return
            yield window

    def iter_sentence_batches(self, batch_size: int) -> Windows:
        """Yield every sentence once, in a row of its own; those of like length together.

        A batch of sentences comes in as many windows as bounded memory takes.

        Args:
            batch_size: the most rows; long sentences come in smaller batches.
        Returns: dicts as from `iter_evaluation`, and `first`, whether the window is the first of
            its batch; in the others the rows continue.
        Raises: DataError if a shard is bad or `batch_size` is below 1.
        """
        _check_counts(batch_size)
        sentences = self.shards.sentences()
        while block := sorted(islice(sentences, SORT_BUFFER), key=len):
            while block:
                longest = len(block[-1]) + 1
                n_rows = min(batch_size, max(1, MAX_SENTENCE_BATCH // longest))
                block, group = block[:-n_rows], block[-n_rows:]
                rows = [Row(i, iter([(0, words)]), self._encode) for i, words in enumerate(group)]
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

    def _sentences(self, stream: SentenceStream) -> Iterator[Sentence]:
        while True:
            for reference, text in stream.read_epoch():
                yield reference, text.split()
            if self.test:
                return
            if not stream.next_epoch():
                raise DataError(f"{self.filepattern}: no sentence; every line is blank")

    def _encode(
        self, words: list[str], whole: bool = False
    ) -> tuple[np.ndarray, np.ndarray | Spelled | None]:
        words = words[::-1] if self.reverse else words
        ids = self.vocab.encode(words, self.reverse, split=False)
        if self.max_word_length is None:
            return ids, None
        if len(words) > LONG_SENTENCE and not whole:
            first, last = (EOS, BOS) if self.reverse else (BOS, EOS)
            return ids, Spelled(self.vocab.spell, [first, *words, last])
        return ids, self.vocab.encode_chars(words, self.reverse, split=False)

    def _masked_window(self, rows: list[Row], n_steps: int, limit: int) -> Window:
        window = empty_window(len(rows), n_steps, self.max_word_length)
        lengths = np.array([row.advance(limit, window) for row in rows])
        return window | {"mask": np.arange(n_steps) < lengths[:, None]}


def _check_counts(*counts: int) -> None:
    if min(counts) < 1:
        raise DataError(f"the numbers of rows and steps must be at least 1, not {counts}")
