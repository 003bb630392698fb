"""`bilm score`: log-probabilities of sentences."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from bilm.commands import options as opt
from bilm.commands import scoring_options as scoring
from bilm.commands.main import command
from bilm.commands.output import MISSING, Row, write_table

SENTENCE_COLUMNS = {
    "forward": float, "backward": float, "mean": float, "predictions": int, "unknown": str,
    "sentence": str,
}  # fmt: skip
NOTE = """
Each sentence starts from zero state. Log-probabilities are natural logarithms. There is a row for
each sentence ("bilm surprisal" writes a row for each word):
  forward, backward    log-probability of the sentence in each direction
  mean                 average log-probability per prediction
  predictions          number of predictions per direction: the number of words plus one
  unknown              words that the vocabulary does not contain, separated by spaces. They are
                       scored as <UNK>, which can be more likely than a known word
  sentence             the words, instead of the number

The last line of the log is AVERAGE PERPLEXITY = <number>, as of "bilm test --stateless". With
--memory, the rows are of the mixture, and PERPLEXITY WITH MEMORY = <number> precedes the line;
both omit sentences of three words or more that the text of the memory contains.
"""


@command(tensorflow=False, notes=[scoring.PLACE_NOTE, NOTE, *scoring.NOTES])
@scoring.model_options
@scoring.text_options
@opt.group("Results", opt.table_option, scoring.memory_option)
def score(model: scoring.Model, input_: str, output: str | None, **reading: Any) -> None:
    """Print the log-probabilities of sentences.

    Probabilities are computed with the full softmax.

    Examples:
      bilm score --model run --input dev.txt > dev.tsv
      bilm score --model elmo --input reviews.csv --column text --id_column id --output scores.csv
      echo "The bank closed ." | bilm score --model run
    """
    from absl import logging

    from bilm.scoring.perplexity import TextLosses
    from bilm.scoring.verdict import MANY_UNKNOWN

    text = scoring.Text(input_, **reading)
    scorer = text.scorer(model)
    losses = TextLosses(model.memory)
    counts = Counter[str]()  # words, and those that the vocabulary lacks

    def rows() -> Iterator[Row]:
        for place, sentence in text.scored(scorer.score, logs_progress=output is not None):
            sentence = losses.add(sentence)
            totals = sentence.total
            counts.update(words=len(sentence.tokens), unknown=len(sentence.unknown))
            del place["sentence"]  # the column contains the words instead
            yield (
                *place.values(), totals["forward"], totals.get("backward", MISSING), sentence.mean,
                sentence.n_predictions, " ".join(sentence.unknown), " ".join(sentence.tokens),
            )  # fmt: skip

    columns = text.with_columns(SENTENCE_COLUMNS)
    write_table(output, columns, rows(), [*text.files, *model.files])

    alone, mixed = losses.perplexities(text.name)
    if mixed is not None:
        logging.info("PERPLEXITY WITH MEMORY = %.2f", mixed.mean)
    if counts["unknown"] > MANY_UNKNOWN * counts["words"]:
        logging.warning(
            "%s: the vocabulary lacks %.1f %% of the words; they are scored as <UNK>, which is "
            "easy to predict; perplexity without them is %.2f", text.name,
            100 * counts["unknown"] / counts["words"], alone.known,
        )  # fmt: skip
    logging.info("AVERAGE PERPLEXITY = %s (single sentences)", alone)
