"""Report the log-probabilities of sentences, in nats, by a biLM with its full softmax.

Examples:
  bilm score --model run --input dev.txt > dev.tsv
  echo "The bank closed ." | bilm score --model run --per_token
  bilm score --model elmo --input dev.txt

--input holds one tokenized sentence per line; blank lines are skipped. Each sentence starts from
zero state and has one line, with tabs between
  forward  backward  mean  predictions  sentence
where `forward` and `backward` are its log-probabilities, `mean` is the average per prediction, and
`predictions` is how many predictions each direction made: one more than there are words.
--per_token prints a line
  forward  backward  token
for each token and mark, and a blank line after the sentence. nan stands where there is no
prediction: at the mark that a direction starts from, and backward in a forward-only model. The last
line of the log is AVERAGE PERPLEXITY = <number>, that of `bilm test --stateless` on the same text.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bilm.commands.flags import Flags
from bilm.commands.model_flags import MODEL, SOFTMAX, define_scorer, scorer_of
from bilm.commands.results import as_json, define_json
from bilm.commands.text_flags import define_on_bad_utf8, define_tokenize

if TYPE_CHECKING:
    from bilm.scores import Score

__doc__ = f"{__doc__}{MODEL}{SOFTMAX}"


def define_flags(flags: Flags) -> None:
    define_scorer(flags)
    flags.group("text")
    flags.path(
        "input", "Glob of the text, plain or gzip; - is standard input.", "GLOB", default="-"
    )
    define_on_bad_utf8(flags)
    define_tokenize(flags)
    flags.switch("per_token", "Print one line per token.")
    define_json(flags, "Print a JSON object per sentence, on a line.")


def main(args: Namespace) -> None:
    from itertools import tee

    from absl import logging

    from bilm.data.shards import Shards, resolve_shards
    from bilm.data.text import STANDARD_INPUT
    from bilm.data.tokenization_check import watched
    from bilm.data.tokenizers import tokenizer
    from bilm.scores import perplexity_of_scores

    how, piped = args.on_bad_utf8, args.input == "-"
    shards = Shards([STANDARD_INPUT], how) if piped else resolve_shards(args.input, how)
    scorer = scorer_of(args)
    lines = token_lines if args.per_token else sentence_line
    if args.json:
        lines = json_line

    def printed() -> Iterator[Score]:
        split = map(tokenizer(args.tokenize), shards.texts())
        sentences, again = tee(watched(split, args.input, scorer.words))
        for words, found in zip(sentences, scorer.score(again), strict=True):
            print(lines(words, found))
            yield found

    logging.info("AVERAGE PERPLEXITY = %s", perplexity_of_scores(printed()).mean)


def sentence_line(words: Sequence[str], found: Score) -> str:
    """Return the line of a sentence."""
    totals = (found.total.get(name, float("nan")) for name in ("forward", "backward"))
    numbers = "\t".join(f"{value:.6f}" for value in (*totals, found.mean))
    return f"{numbers}\t{found.n_predictions}\t{' '.join(words)}"


def json_line(words: Sequence[str], found: Score) -> str:
    """Return a sentence as JSON, on one line; null where there is no prediction."""
    forward, backward = found.total.get("forward"), found.total.get("backward")
    rows = token_rows(words, found)
    return as_json(
        {
            "words": list(words),
            "forward": None if forward is None else float(forward),
            "backward": None if backward is None else float(backward),
            "mean": float(found.mean),
            "predictions": found.n_predictions,
            "tokens": [{"token": t, "forward": float(f), "backward": float(b)} for f, b, t in rows],
        }
    )


def token_lines(words: Sequence[str], found: Score) -> str:
    """Return the lines of a sentence's tokens and marks."""
    return "".join(f"{f:.6f}\t{b:.6f}\t{word}\n" for f, b, word in token_rows(words, found))


def token_rows(words: Sequence[str], found: Score) -> Iterator[tuple[float, float, str]]:
    """Yield the log-probabilities of each token and mark, nan for none, and the token."""
    nan = float("nan")
    backward = [nan] * len(found.forward) if found.backward is None else found.backward
    return zip([nan, *found.forward], [*backward, nan], ["<S>", *words, "</S>"], strict=True)
