"""`bilm score`: log-probabilities of sentences."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import Column, Row, as_json, table, table_ending

if TYPE_CHECKING:
    from bilm.data.readers import Record
    from bilm.scoring.scorer import Score

NAN = float("nan")
SENTENCE_COLUMNS = (
    Column("forward", float), Column("backward", float), Column("mean", float),
    Column("predictions", int), Column("unknown", str), Column("sentence", str),
)  # fmt: skip
TOKEN_COLUMNS = (
    Column("sentence", int), Column("forward", float), Column("backward", float),
    Column("known", bool), Column("token", str),
)  # fmt: skip
NOTE = """
Sentences without words, such as blank lines, are skipped. Each sentence starts from zero state.
Log-probabilities are natural logarithms. With --id_column, the first column is `id`, which contains
the ids of the input. The other columns are
  forward, backward  log-probability of the sentence in each direction
  mean               average log-probability per prediction
  predictions        number of predictions per direction: the number of words plus one
  unknown            words that the vocabulary does not contain, separated by spaces. They are
                     scored as <UNK>, which can be more likely than a known word
  sentence           the words
With --per_token, there is a row for each word and for the marks <S> and </S>:
  sentence           number of the sentence, from 0
  forward, backward  log-probability of the token; empty where a direction does not predict it
  known              false for words that the vocabulary does not contain
  token              the word or mark

Rows are written to standard output, separated by tabs, or to --output as .csv, .tsv or .parquet.
Fields are quoted where necessary. So that pandas does not read the word NA as a missing value, use
pandas.read_csv(FILE, keep_default_na=False, na_values=[""]), and sep="\\t" for tabs. The last line
of the log is AVERAGE PERPLEXITY = <number>, which equals that of "bilm test --stateless" on the
same text.
"""


class Token(NamedTuple):
    """A token or mark and its log-probabilities; nan where a direction does not predict it."""

    forward: float
    backward: float
    known: bool
    token: str


@command(notes=[NOTE, opt.input_forms_help, opt.SOFTMAX_NOTE, opt.MODEL_FORMS])
@opt.scorer_options
@opt.scored_text
@opt.group(
    "Results",
    opt.table_option,
    opt.flag("--per_token", "Write one row per token."),
    opt.flag("--json", "Print one JSON object per line, one for each sentence."),
)
def score(
    input_: str, column: str | None, id_column: str | None, on_bad_utf8: str, tokenize: str | None,
    output: str | None, per_token: bool, json: bool, **model: str | None
) -> None:  # fmt: skip
    """Print the log-probabilities of sentences.

    Probabilities are computed with the full softmax.

    Examples:
      bilm score --model run --input dev.txt > dev.tsv
      bilm score --model elmo --input dev.txt --per_token --output dev.csv
      bilm score --model elmo --input reviews.csv --column text --id_column id --output scores.csv
      echo "The bank closed ." | bilm score --model run --per_token
    """
    from absl import logging

    from bilm.data.readers import Corpus
    from bilm.data.shards import matching_files
    from bilm.data.text import STANDARD_INPUT
    from bilm.data.tokenization import TokenizationCheck
    from bilm.scoring.scorer import perplexity_of_scores
    from bilm.support.progress import progress

    if json and (output or per_token):
        raise click.UsageError("--json prints all values: remove --output and --per_token")
    if output is not None:
        table_ending(output)
    files = [input_] if input_ == STANDARD_INPUT else matching_files(input_)

    def records(tokenize: str | None = None) -> Iterator[Record]:
        corpora = [
            Corpus(path, column, id_column, tokenize=tokenize, on_bad_utf8=on_bad_utf8)
            for path in files
        ]
        return (record for corpus in corpora for record in corpus if record.words)

    read, total = records(tokenize), None
    if output is not None and all(map(os.path.isfile, files)):
        total = sum(1 for _ in records())
    scorer = opt.open_scorer(model)
    ids: deque[str | None] = deque()  # of the sentences that are read and not yet scored

    def sentences() -> Iterator[list[str]]:
        for words, id_ in read:
            ids.append(id_)
            yield words

    checked = TokenizationCheck(input_, frozenset(scorer.words)).watch(sentences())
    scores = ((ids.popleft(), found) for found in scorer.score(checked))

    def written() -> Iterator[Score]:
        if json:
            for id_, found in scores:
                print(as_json(({"id": id_} if id_column else {}) | _as_object(found)))
                yield found
            return
        columns = TOKEN_COLUMNS if per_token else SENTENCE_COLUMNS
        columns = (*([Column("id", str)] if id_column else []), *columns)
        with (
            table(output, columns, [*files, *model.values()]) as write,
            progress("scoring", "sentences", total) as shown,
        ):
            for number, (id_, found) in enumerate(scores):
                for row in _rows(number, found, per_token):
                    write((id_, *row) if id_column else row)
                if output is not None:
                    shown.add(1)
                yield found

    logging.info("AVERAGE PERPLEXITY = %s", perplexity_of_scores(written()).mean)


def _unknown(found: Score) -> list[str]:
    """Return the words of a sentence that the vocabulary does not contain."""
    return [word for word, known in zip(found.tokens, found.is_known, strict=False) if not known]


def _rows(number: int, found: Score, per_token: bool) -> Iterator[Row]:
    """Yield the rows of a sentence."""
    if per_token:
        yield from ((number, *token) for token in _tokens(found))
        return
    totals = (found.total.get(direction, NAN) for direction in ("forward", "backward"))
    words = " ".join(found.tokens)
    yield *totals, found.mean, found.n_predictions, " ".join(_unknown(found)), words


def _as_object(found: Score) -> dict[str, Any]:
    """Return a sentence for JSON."""
    return {
        "words": found.tokens,
        "forward": found.total.get("forward"),
        "backward": found.total.get("backward"),
        "mean": found.mean,
        "predictions": found.n_predictions,
        "unknown": _unknown(found),
        "tokens": [token._asdict() for token in _tokens(found)],
    }


def _tokens(found: Score) -> Iterator[Token]:
    """Yield the tokens and marks of a sentence."""
    backward = [NAN] * len(found.forward) if found.backward is None else found.backward.tolist()
    rows = zip(
        [NAN, *found.forward.tolist()],
        [*backward, NAN],
        [True, *found.is_known.tolist()],
        ["<S>", *found.tokens, "</S>"],
        strict=True,
    )
    yield from (Token(*row) for row in rows)
