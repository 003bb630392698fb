"""`bilm score`: log-probabilities of sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from cloup.constraints import If, accept_none, constraint

from bilm.commands import options as opt
from bilm.commands import scoring_options as scoring
from bilm.commands.main import command
from bilm.commands.output import Column, Row, as_json, table

if TYPE_CHECKING:
    from bilm.scoring.scorer import Score

NAN = float("nan")
SENTENCE_COLUMNS = (
    Column("forward", float), Column("backward", float), Column("mean", float),
    Column("predictions", int), Column("unknown", str), Column("sentence", str),
)  # fmt: skip
TOKEN_COLUMNS = (
    Column("forward", float), Column("backward", float), Column("known", bool),
    Column("token", str),
)  # fmt: skip
NOTE = """
Each sentence starts from zero state. Log-probabilities are natural logarithms. Without --per_token,
there is a row for each sentence:
  forward, backward    log-probability of the sentence in each direction
  mean                 average log-probability per prediction
  predictions          number of predictions per direction: the number of words plus one
  unknown              words that the vocabulary does not contain, separated by spaces. They are
                       scored as <UNK>, which can be more likely than a known word
  sentence             the words, instead of the number
With --per_token, there is a row for each word and for the marks <S> and </S>:
  forward, backward    log-probability of the token; empty where a direction does not predict it
  known                false for words that the vocabulary does not contain
  token                the word or mark

The last line of the log is AVERAGE PERPLEXITY = <number>, which equals that of "bilm test
--stateless" on the same text.
"""


class Token(NamedTuple):
    """A token or mark and its log-probabilities; nan where a direction does not predict it."""

    forward: float
    backward: float
    known: bool
    token: str


@command(notes=[scoring.PLACE_NOTE, NOTE, *scoring.NOTES])
@scoring.model_options
@scoring.text_options
@opt.group(
    "Results",
    opt.table_option,
    opt.flag("--per_token", "Write one row per token."),
    opt.flag("--json", "Print one JSON object per line, one for each sentence."),
)
@constraint(If("json", accept_none), ["output", "per_token"])
def score(
    files: scoring.Files, text: scoring.Text, output: str | None, per_token: bool, json: bool
) -> None:
    """Print the log-probabilities of sentences.

    Probabilities are computed with the full softmax.

    Examples:
      bilm score --model run --input dev.txt > dev.tsv
      bilm score --model elmo --input dev.txt --per_token --output dev.csv
      bilm score --model elmo --input reviews.csv --column text --id_column id --output scores.csv
      echo "The bank closed ." | bilm score --model run --per_token
    """
    from absl import logging

    from bilm.scoring.scorer import perplexity_of_scores
    from bilm.support.progress import progress

    scorer = files.open()
    scores = text.scored(scorer, scorer.score)

    def written() -> Iterator[Score]:
        if json:
            names = [column.name for column in text.columns]
            for place, found in scores:
                print(as_json(dict(zip(names, place, strict=True)) | _as_object(found)))
                yield found
            return
        n = len(text.columns) if per_token else -1  # a row has the number or the words
        columns = [*text.columns[:n], *(TOKEN_COLUMNS if per_token else SENTENCE_COLUMNS)]
        with (
            table(output, columns, [*text.files, *files]) as write,
            progress("scoring", "sentences") as shown,
        ):
            for place, found in scores:
                for row in _tokens(found) if per_token else [_sentence(found)]:
                    write((*place[:n], *row))
                if output is not None:
                    shown.add(1)
                yield found

    logging.info("AVERAGE PERPLEXITY = %s", perplexity_of_scores(written()).mean)


def _unknown(found: Score) -> list[str]:
    """Return the words of a sentence that the vocabulary does not contain."""
    return [word for word, known in zip(found.tokens, found.is_known, strict=False) if not known]


def _sentence(found: Score) -> Row:
    """Return the row of a sentence."""
    totals = (found.total.get(direction, NAN) for direction in ("forward", "backward"))
    unknown, words = " ".join(_unknown(found)), " ".join(found.tokens)
    return (*totals, found.mean, found.n_predictions, unknown, words)


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
