"""`bilm surprisal`: bits per word, for joining with reading times."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat, tee
from typing import TYPE_CHECKING, Any

from bilm.commands import options as opt
from bilm.commands import scoring_options as scoring
from bilm.commands.main import command
from bilm.commands.output import Column, table

if TYPE_CHECKING:
    from bilm.scoring.adaptation import Adaptation

WORD_COLUMNS = (
    Column("position", int), Column("word", str), Column("characters", int), Column("known", bool),
    Column("forward", float), Column("backward", float), Column("forward_cumulative", float),
    Column("backward_cumulative", float),
)  # fmt: skip
ADAPTED_COLUMNS = Column("forward_adapted", float), Column("backward_adapted", float)
NOTE = """
Surprisal is -log2 of the probability of a word given the words to its left (forward) or to its
right (backward), in bits. Each sentence starts from zero state. There is one row per word, with the
other columns
  position             number of the word in the sentence, from 0
  word, characters     the word, and its length in characters (Unicode code points)
  known                false for words that the vocabulary does not contain. They are scored as
                       <UNK>, which can be more likely than a known word
  forward, backward    surprisal; backward is empty for a forward-only model
  forward_cumulative   sum from the first word of the sentence to this one
  backward_cumulative  sum from the last word of the sentence back to this one
  forward_adapted, backward_adapted
                       with --adapt or --cache: surprisal for a model that adapts to the sentences
                       in their order and scores each word before it adapts to it. The other columns
                       are of the model that does not adapt

"bilm score --per_token" also scores the marks <S> and </S>, in natural logarithms.
"""


@command(notes=[scoring.PLACE_NOTE, NOTE, *scoring.NOTES])
@scoring.model_options
@scoring.text_options
@scoring.adaptation_options
@opt.group("Results", opt.table_option)
def surprisal(
    files: scoring.Files, text: scoring.Text, adaptation: Adaptation | None, output: str | None
) -> None:
    """Print the surprisal of each word in bits, by direction.

    Probabilities are computed with the full softmax.

    Examples:
      bilm surprisal --model novels-en --input story.txt > story.tsv
      bilm surprisal --model run --input items.csv --column text --id_column item \\
          --output items_surprisal.csv
      bilm surprisal --model run --input story.txt --adapt 0.0003 --output story.csv
      bilm surprisal --model elmo --input en_gum-ud-dev.conllu --output gum.parquet
    """
    from absl import logging

    from bilm.errors import DataError
    from bilm.scoring.surprisal import Surprisal, word_surprisals
    from bilm.support.progress import progress

    scorer = files.open()

    def measured(sentences: Iterator[list[str]]) -> Iterator[tuple[Surprisal, Surprisal | None]]:
        if adaptation is None:
            return zip(word_surprisals(scorer, sentences), repeat(None))
        sentences, again = tee(sentences)
        adapted = word_surprisals(scorer, again, adaptation)
        return zip(word_surprisals(scorer, sentences), adapted, strict=True)

    n_words = n_unknown = n_sentences = 0
    columns = [*text.columns, *WORD_COLUMNS, *(ADAPTED_COLUMNS if adaptation else ())]
    with (
        table(output, columns, [*text.files, *files]) as write,
        progress("scoring", "sentences") as shown,
    ):
        for place, (found, adapted) in text.scored(scorer, measured):
            values: list[Any] = [*found, *((adapted.forward, adapted.backward) if adapted else ())]
            by_word = zip(*(v if isinstance(v, list) else v.tolist() for v in values), strict=True)
            for position, row in enumerate(by_word):
                write((*place, position, *row))
            n_sentences += 1
            n_words += len(found.word)
            n_unknown += int((~found.known).sum())
            if output is not None:
                shown.add(1)
        if not n_words:
            raise DataError(f"{text.name}: found no words, expected at least one sentence")
    logging.info(
        "%s sentences, %s words, %s of them not in the vocabulary",
        f"{n_sentences:,}", f"{n_words:,}", f"{n_unknown:,}",
    )  # fmt: skip
