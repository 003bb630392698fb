"""`bilm surprisal`: bits per word, for joining with reading times."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from itertools import repeat, tee
from typing import Any

from bilm.commands import options as opt
from bilm.commands.adaptation_options import adaptation_of, adaptation_options
from bilm.commands.main import command
from bilm.commands.output import Column, table

WORD_COLUMNS = (
    Column("sentence", int),
    Column("position", int),
    Column("word", str),
    Column("characters", int),
    Column("known", bool),
    Column("forward", float),
    Column("backward", float),
    Column("forward_cumulative", float),
    Column("backward_cumulative", float),
)
ADAPTED_COLUMNS = Column("forward_adapted", float), Column("backward_adapted", float)
NOTE = """
Surprisal is -log2 of the probability of a word given the words to its left (forward) or to its
right (backward), in bits. Each sentence starts from zero state. There is one row per word, with the
columns
  file                 name of the file, if --input matches several
  id                   id of the sentence, if there are ids (--id_column or FASTA)
  sentence, position   number of the sentence in its file, and of the word in the sentence, from 0.
                       Sentences without words, such as blank lines, are numbered
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

Rows are written to standard output, separated by tabs, or to --output as .csv, .tsv or .parquet.
Fields are quoted where necessary. So that pandas does not read the word NA as a missing value, use
pandas.read_csv(FILE, keep_default_na=False, na_values=[""]), and sep="\\t" for tabs. "bilm score
--per_token" also scores the marks <S> and </S>, in natural logarithms.
"""


@command(notes=[NOTE, opt.input_forms_help, opt.SOFTMAX_NOTE, opt.MODEL_FORMS])
@opt.scorer_options
@opt.scored_text
@adaptation_options
@opt.group("Results", opt.table_option)
def surprisal(
    input_: str, column: str | None, id_column: str | None, on_bad_utf8: str,
    tokenize: str | None, output: str | None, adapt: float | None, adapt_decay: float | None,
    adapt_steps: int | None, cache: float | None, cache_theta: float | None,
    cache_words: int | None, **model: str | None
) -> None:  # fmt: skip
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

    from bilm.analysis.surprisal import Surprisal, word_surprisals
    from bilm.commands.output import table_ending
    from bilm.data.readers import Corpus
    from bilm.data.shards import matching_files
    from bilm.data.text import STANDARD_INPUT
    from bilm.data.tokenization import TokenizationCheck
    from bilm.errors import DataError
    from bilm.support.progress import progress

    adapting: dict[str, Any] = {
        "adapt": adapt, "adapt_decay": adapt_decay, "adapt_steps": adapt_steps, "cache": cache,
        "cache_theta": cache_theta, "cache_words": cache_words,
    }  # fmt: skip
    adaptation = adaptation_of(adapting)
    if output is not None:
        table_ending(output)
    paths = [input_] if input_ == STANDARD_INPUT else matching_files(input_)
    corpora = [
        Corpus(path, column, id_column, tokenize=tokenize, on_bad_utf8=on_bad_utf8)
        for path in paths
    ]
    total = None
    if output is not None and all(map(os.path.isfile, paths)):
        # Sentences are counted without --tokenize, which takes long and does not change the number.
        blank_split = (Corpus(path, column, on_bad_utf8=on_bad_utf8) for path in paths)
        total = sum(bool(record.words) for corpus in blank_split for record in corpus)
    scorer = opt.open_scorer(model)
    has_files, has_ids = len(paths) > 1, any(corpus.has_ids for corpus in corpora)
    names = ["file"] * has_files + ["id"] * has_ids
    places: deque[tuple[list[str], int]] = deque()  # of the sentences read, but not yet scored

    def sentences() -> Iterator[list[str]]:
        for corpus in corpora:
            for number, record in enumerate(corpus):
                if record.words:
                    keys = [corpus.path] * has_files + [record.id or ""] * has_ids
                    places.append((keys, number))
                    yield record.words

    n_words = n_unknown = n_sentences = 0
    checked = TokenizationCheck(input_, frozenset(scorer.words)).watch(sentences())
    adapted: Iterator[Surprisal | None] = repeat(None)
    columns_of_words = [*WORD_COLUMNS, *(ADAPTED_COLUMNS if adaptation else ())]
    if adaptation is not None:
        checked, again = tee(checked)
        adapted = word_surprisals(scorer, again, adaptation)
    with (
        table(output, [*(Column(name, str) for name in names), *columns_of_words],
              [*paths, *model.values()]) as write,
        progress("scoring", "sentences", total) as shown,
    ):  # fmt: skip
        for found, again_found in zip(word_surprisals(scorer, checked), adapted, strict=False):
            keys, number = places.popleft()
            values_of_words: list[Any] = [*found]
            if again_found is not None:
                values_of_words += [again_found.forward, again_found.backward]
            columns = (v if isinstance(v, list) else v.tolist() for v in values_of_words)
            for position, row in enumerate(zip(*columns, strict=True)):
                write((*keys, number, position, *row))
            n_sentences += 1
            n_words += len(found.word)
            n_unknown += int((~found.known).sum())
            if output is not None:
                shown.add(1)
        if not n_words:
            raise DataError(f"{input_}: found no words, expected at least one sentence")
    logging.info(
        "%s sentences, %s words, %s of them not in the vocabulary",
        f"{n_sentences:,}", f"{n_words:,}", f"{n_unknown:,}",
    )  # fmt: skip
