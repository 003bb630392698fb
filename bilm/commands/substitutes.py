"""List the most likely words at a position of a sentence, by a biLM with its full softmax.

Examples:
  bilm substitutes --model run --sentence "The bank closed early ." --position 1
  bilm substitutes --model elmo --n 20 \\
      --sentence "She sat on the [?] of the river ." --position 4

--sentence holds tokens with spaces between them, or text that --tokenize splits; --position is that
of one of them, from 0, which itself is not read. `forward` predicts from what is left of the
position, `backward` from what is right of it, each with log-probabilities in nats; `both` ranks by
the product of the two probabilities, so its numbers are sums.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from bilm.commands.flags import Flags
from bilm.commands.model_flags import MODEL, SOFTMAX, define_scorer, scorer_of
from bilm.commands.results import define_json, show
from bilm.commands.text_flags import define_tokenize

if TYPE_CHECKING:
    from bilm.scores import Substitutes

__doc__ = f"{__doc__}{MODEL}{SOFTMAX}"


def define_flags(flags: Flags) -> None:
    define_scorer(flags)
    flags.group("place")
    flags.text("sentence", "Tokens with spaces between them.", required=True)
    define_tokenize(flags)
    flags.integer("position", "Which of the tokens, from 0.", required=True)
    flags.integer("n", "How many words per column.", 1, default=10)
    define_json(flags, "Print one JSON object: per column a list of [word, number].")


def main(args: Namespace) -> None:
    from bilm.data.tokenizers import tokenizer

    words = tokenizer(args.tokenize)(args.sentence)
    found = scorer_of(args).substitutes(words, args.position, args.n)
    show(args, found._asdict(), table(found))


def table(found: Substitutes) -> str:
    """Return a column for each direction, and one for both."""
    columns = []
    for name, words in found._asdict().items():
        if words is not None:
            width = max(map(len, [name, *(word for word, _ in words)]))
            cells = [f"{word:<{width}} {value:>8.3f}" for word, value in words]
            columns.append([f"{name:<{width + 9}}", *cells])
    return "\n".join("   ".join(row).rstrip() for row in zip(*columns, strict=True))
