"""Both directions of a text side by side."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from bilm.data.dataset import LMDataset, Windows
from bilm.data.shards import Shards, resolve_shards
from bilm.data.stream import Position, Trace
from bilm.data.vocabulary import Vocabulary
from bilm.data.windows import KEY_SUFFIX, Window

COMMON = ("mask", "first")  # what both directions have the same


class BidirectionalLMDataset:
    """A forward and a backward `LMDataset`, the latter's keys with the suffix `_reverse`.

    Shuffled, the two read in orders of their own. `mask` is that of both: evaluation reads in
    order, and a sentence is as long from either end. Arguments and errors are `LMDataset`'s.
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

    def iter_batches(self, batch_size: int, num_steps: int, first_batch: int = 0) -> Windows:
        """Return windows for training: see `LMDataset.iter_batches`."""
        return _merge(r.iter_batches(batch_size, num_steps, first_batch) for r in self.readers)

    def iter_placed_batches(
        self,
        batch_size: int,
        num_steps: int,
        position: Position | None = None,
        first_batch: int = 0,
        own: range | None = None,
    ) -> Iterator[tuple[Window, Trace]]:
        """Yield windows for training with their places: see `LMDataset.iter_placed_batches`."""
        arguments = batch_size, num_steps, position, first_batch, own
        both = (r.iter_placed_batches(*arguments) for r in self.readers)
        for (forward, one), (backward, other) in zip(*both, strict=True):
            trace = Trace(one.position | other.position, one.sources + other.sources)
            yield _join(forward, backward), trace

    def iter_evaluation(
        self, batch_size: int, n_steps: int, drop_remainder: bool = False
    ) -> Windows:
        """Return every prediction of the text once: see `LMDataset.iter_evaluation`."""
        return _merge(r.iter_evaluation(batch_size, n_steps, drop_remainder) for r in self.readers)

    def iter_sentence_batches(self, batch_size: int) -> Windows:
        """Return whole sentences, the same in a row of both: see `LMDataset`."""
        return _merge(r.iter_sentence_batches(batch_size) for r in self.readers)


Reader = LMDataset | BidirectionalLMDataset


def _merge(readers: Iterable[Windows]) -> Windows:
    return (_join(forward, backward) for forward, backward in zip(*readers, strict=True))


def _join(forward: Window, backward: Window) -> Window:
    return forward | {k + KEY_SUFFIX["backward"]: v for k, v in backward.items() if k not in COMMON}
