"""`bilm surprisal`: bits per word and region, for joining with reading times."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from cloup.constraints import If, constraint, require_all

from bilm.commands import Row, command, write_table
from bilm.commands import options as opt
from bilm.commands import scoring_options as scoring

WORD_COLUMNS = {
    "position": int, "word": str, "characters": int, "known": bool,
    "forward": float, "backward": float,
    "forward_cumulative": float, "backward_cumulative": float,
    "forward_entropy": float, "backward_entropy": float,
    "forward_rank": float, "backward_rank": float,
}  # fmt: skip
TOP_COLUMNS = {"forward_top": str, "backward_top": str}
REGION_COLUMNS = {
    "region": int, "region_name": str, "region_forward": float, "region_backward": float,
}  # fmt: skip
TRIGRAM_COLUMNS = {"trigram": float, "trigram_known": bool}
MARKS = ("|", "||", "/", "//", "^")  # usual marks between regions
LEAST = 0.1  # share of sentences with such a mark, for a warning
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
With --ngrams, more columns, which do not read --context:
  trigram              surprisal given the two words before, by the counts
  trigram_known        false for words outside the vocabulary of the counts, scored as <UNK>

With --regions, words equal to MARK separate regions and are not read. More columns of each word:
  region, region_name  number of marks before the word; name of the region, or its words
  region_forward       sum over the region: -log2 of its probability given the words before it
  region_backward      the same given the words after it
"""


@command(notes=[scoring.PLACE_NOTE, NOTE, *scoring.NOTES])
@scoring.model_options
@scoring.text_options
@opt.group(
    "Results",
    opt.option("--context", opt.Integer(0), "Number of sentences of the same file before a "
               "sentence that both directions read first, as in training.", "none", default=0),
    opt.option("--items", opt.TEXT, "Column of a table that contains the item of a sentence. The "
               "context is then the first sentences of the item.", "none", metavar="NAME"),
    opt.option("--top", opt.Integer(1), "Number of likeliest words to list.", "none", metavar="K"),
    opt.option("--regions", opt.TEXT, "Word that separates regions, such as |.", "none",
               metavar="MARK"),
    opt.option("--region_names", opt.List(opt.TEXT), "Names of the regions of each sentence.",
               "their words", metavar="NAME,..."),
    opt.table_option,
    scoring.memory_option,
    opt.option("--ngrams", opt.FETCHED, 'Counts that "bilm vocab --ngrams" wrote, for trigram '
               "surprisal.", "none"),
)  # fmt: skip
@constraint(If("region_names", require_all), ["regions"])
@constraint(If("items", require_all), ["context"])
def surprisal(
    model: scoring.Model, input_: str, context: int, items: str | None,
    top: int | None, regions: str | None, region_names: tuple[str, ...] | None, output: str | None,
    ngrams: str | None, **reading: Any
) -> None:  # fmt: skip
    """Print the surprisal of words, and of regions, in bits.

    Examples:
      bilm surprisal --model novels-en --input story.txt > story.tsv
      bilm surprisal --model run --input story.txt --context 3 --top 5 --output story.csv
      bilm surprisal --model run --input items.csv --column sentence --keep item,condition \\
          --regions "|" --region_names subject,verb,end --items item --context 1
      bilm surprisal --model novels-en --input story.txt --ngrams counts.hdf5 > story.tsv
    """
    from absl import logging

    from bilm.errors import DataError, OptionsError
    from bilm.studies.gaps import marks
    from bilm.studies.reading.surprisal import load_trigrams, rows_of, word_surprisals

    marks_of_regions = None if regions is None else marks(regions)
    text = scoring.Text(input_, marks=marks_of_regions, **reading)
    if items is not None and items not in text.columns:
        raise OptionsError(f"--items {items}: --keep must contain this column")
    scorer = text.scorer(model, lambda words: (context + 1) * scoring.n_predictions(words))
    columns: dict[str, type] = dict(WORD_COLUMNS)
    if regions:
        columns |= REGION_COLUMNS
    if top:
        columns |= TOP_COLUMNS
    if ngrams:
        columns |= TRIGRAM_COLUMNS
    surprisals_of = partial(
        word_surprisals, scorer, context=context, top=top or 0, mark=regions,
        region_names=region_names, is_item=items is not None, memory=model.memory,
        trigrams=load_trigrams(ngrams) if ngrams else None,
    )  # fmt: skip
    together = [name for name in ("file", items) if context and name in text.columns]
    logs_progress = output is not None
    scored = text.scored(surprisals_of, together, logs_progress, refuses_empty=items is not None)
    is_known = Counter[bool]()
    n_sentences = Counter[str]()  # all, and those that contain each mark

    def rows() -> Iterator[Row]:
        for place, surprisal in scored:
            values = rows_of(surprisal)
            for row in zip(*(values[name] for name in columns), strict=True):
                yield *place.values(), *row
            is_known.update(values["known"])
            n_sentences.update(["all", *set(MARKS).intersection(values["word"])])
            n_sentences["divided"] += regions is not None and any(values["region"])
        if not is_known:
            raise DataError(f"{text.name}: found no words, expected at least one sentence")

    write_table(output, text.with_columns(columns), rows(), [*text.files, *model.files, ngrams])
    logging.info("%d rows, %d of them not in the vocabulary", is_known.total(), is_known[False])
    if regions is not None and not n_sentences["divided"]:
        logging.warning("%s: no sentence contains the mark %s", text.name, regions)
    for mark in MARKS:
        if regions is None and n_sentences[mark] > LEAST * n_sentences["all"]:
            logging.warning(
                "%s: %s of %s sentences contain %s, which was read as a word; if it separates "
                "regions, use --regions \"%s\"", text.name, f"{n_sentences[mark]:,}",
                f"{n_sentences['all']:,}", mark, mark,
            )  # fmt: skip
