"""`bilm surprisal`: bits per word or region, for joining with reading times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from cloup.constraints import constraint, mutually_exclusive

from bilm.commands import options as opt
from bilm.commands import scoring_options as scoring
from bilm.commands.main import command
from bilm.commands.output import Columns, Row, write_table

WORD_COLUMNS = {
    "position": int, "word": str, "characters": int, "known": bool,
    "forward": float, "backward": float,
    "forward_cumulative": float, "backward_cumulative": float,
    "forward_entropy": float, "backward_entropy": float,
    "forward_rank": float, "backward_rank": float,
}  # fmt: skip
TOP_COLUMNS = {"forward_top": str, "backward_top": str}
REGION_COLUMNS = {
    "region": int, "words": str, "n_words": int, "known": bool,
    "forward_sum": float, "forward_mean": float, "backward_sum": float, "backward_mean": float,
}  # fmt: skip
NOTE = """
Surprisal is -log2 of the probability of a word given the words to its left (forward) or to its
right (backward), in bits. There is one row per word, with the other columns
  position, word, characters
                       number of the word from 0, the word, and its length in code points
  known                false for words outside the vocabulary, which are scored as <UNK>
  forward              surprisal
  forward_cumulative   sum from the first word that the direction reads to this one
  forward_entropy      entropy of the predicted distribution in bits: the expected surprisal
  forward_rank         1 plus the number of likelier words of the vocabulary, with its marks
  forward_top          with --top: the likeliest words and their surprisal, "chair:1.9 bed:2.25"
and the same for backward, which are empty for a forward-only model.
With --memory, the surprisal is of the mixture; entropy, rank and likeliest words of the model.

With --regions, words equal to MARK separate regions and are not read. Each region that contains
words has a row: region, the number of marks before it; words; n_words; known, whether all words
are; forward_sum, -log2 of its probability given its context; forward_mean; the same for backward.
"""


@command(notes=[scoring.PLACE_NOTE, NOTE, *scoring.NOTES])
@scoring.model_options
@scoring.text_options
@opt.group(
    "Results",
    opt.option("--context", opt.Integer(0), "Number of sentences of the same file before a "
               "sentence that both directions read first, as in training.", "none", default=0),
    opt.option("--top", opt.Integer(1), "Number of likeliest words to list.", "none", metavar="K"),
    opt.option("--regions", opt.TEXT, "Word that separates regions, such as |.", "none",
               metavar="MARK"),
    opt.table_option,
    scoring.memory_option,
)  # fmt: skip
@constraint(mutually_exclusive, ["regions", "top"])
def surprisal(
    model: scoring.Model, text: scoring.Text, context: int, top: int | None,
    regions: str | None, output: str | None, memory: str | None
) -> None:  # fmt: skip
    """Print the surprisal of words or regions in bits.

    Examples:
      bilm surprisal --model novels-en --input story.txt > story.tsv
      bilm surprisal --model run --input story.txt --context 3 --top 5 --output story.csv
      echo "The horse | raced past the barn | fell ." | bilm surprisal --model run --regions "|"
    """
    from absl import logging

    from bilm.analysis.surprisal import columns_of, word_surprisals
    from bilm.errors import DataError
    from bilm.scoring.memory.file import StoredMemory

    scorer = text.scorer(model, lambda words: (context + 1) * scoring.n_predictions(words))
    recall = StoredMemory.load(memory, model.stored, scorer.words).memory if memory else None
    surprisals_of = partial(
        word_surprisals, scorer, context=context, top=top or 0, mark=regions, memory=recall
    )
    columns: Columns = REGION_COLUMNS if regions else WORD_COLUMNS
    if top:
        columns = {**columns, **TOP_COLUMNS}

    is_known = Counter[bool]()
    scored = text.scored(surprisals_of, apart=context > 0, logs_progress=output is not None)

    def rows() -> Iterator[Row]:
        for place, surprisal in scored:
            values = columns_of(surprisal, regions=regions is not None)
            for row in zip(*(values[name] for name in columns), strict=True):
                yield *place, *row
            is_known.update(values["known"])
        if not is_known:
            raise DataError(f"{text.name}: found no words, expected at least one sentence")

    write_table(output, {**text.columns, **columns}, rows(), [*text.files, *model.files])
    logging.info("%d rows, %d of them not in the vocabulary", is_known.total(), is_known[False])
