"""Text -> a vocabulary sorted by descending frequency."""

from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

from bilm.data.marks import BOS, EOS, MARKS, NOT_A_WORD
from bilm.data.shards import TextFiles, resolve_shards
from bilm.data.text import writing_text
from bilm.errors import ArgumentError, DataError
from bilm.support.files import expanded, protect
from bilm.support.progress import Progress
from bilm.support.urls import PathLike

MAX_MIN_COUNT = 3  # words that occur less often are hardly learned
FEW_UNKNOWN = 0.05  # share of the words of other text


class VocabularyCounts(NamedTuple):
    """Counts of the text and of the vocabulary built from it."""

    min_count: int  # the minimum count of its words
    n_sentences: int
    n_tokens: int
    n_distinct: int
    n_words: int  # words in the vocabulary, without marks
    n_covered: int  # tokens of the text that are in the vocabulary


def build_vocabulary(
    input: TextFiles,
    output: PathLike,
    min_count: int | None = None,
    max_size: int | None = None,
    on_bad_utf8: str = "error",
) -> VocabularyCounts:
    """Write a vocabulary, as `bilm vocab` does: the three marks, then words by descending
    frequency, ties by the word. Memory: about 150 bytes per distinct word. `bilm.vocab` is this
    function.

    Args:
        input: `Shards`, or their glob, plain or compressed, one tokenized sentence per line.
        min_count: skip words that occur less often; None for `chosen_min_count`.
        max_size: maximum number of lines of the output, including the marks.
    Raises: DataError if a shard cannot be read or is also the output, or if no word is left;
        ArgumentError if `min_count` is less than 1; OSError if the output cannot be written.
    """
    if min_count is not None and min_count < 1:
        raise ArgumentError(f"min_count is {min_count}, expected at least 1")
    output = expanded(output)
    shards = resolve_shards(input, on_bad_utf8, reads_once=True)
    protect(output, *shards.paths)
    shards.examine()

    # Occurrences of each word. The words of marks are not words of the vocabulary.
    counted = Progress("counting words", "sentences")
    counts = Counter(chain.from_iterable(counted.over(shards.sentences())))
    n_tokens = counts.total()
    n_ends = counts[BOS] + counts[EOS]
    for name in (*MARKS, NOT_A_WORD):
        del counts[name]

    if min_count is None:
        min_count = chosen_min_count(counts)
    ranked = sorted((-n, word) for word, n in counts.items() if n >= min_count)
    if max_size is not None:
        ranked = ranked[: max(0, max_size - len(MARKS))]
    if not ranked:
        raise DataError(
            f"{shards.name}: no word is left: every line is blank, or min_count is too "
            "high or max_size too low"
        )
    lines = [*MARKS, *(word for _, word in ranked)]
    with writing_text(output) as file:
        file.writelines(f"{line}\n" for line in lines)
    n_covered = n_ends - sum(n for n, _ in ranked)
    return VocabularyCounts(
        min_count, counted.n_done, n_tokens, len(counts), len(ranked), n_covered
    )


vocab = build_vocabulary


def chosen_min_count(counts: Mapping[str, int]) -> int:
    """Return the largest minimum count up to `MAX_MIN_COUNT` that leaves at most `FEW_UNKNOWN` of
    the words of other text unknown, or else 1. Each of the n occurrences of a word represents one
    in other text, which is unknown if n - 1 is less than the minimum count."""
    n_tokens = sum(counts.values())
    chosen = 1
    for min_count in range(2, MAX_MIN_COUNT + 1):
        n_unknown = sum(n for n in counts.values() if n <= min_count)
        if n_unknown <= FEW_UNKNOWN * n_tokens:
            chosen = min_count
    return chosen
