"""`bilm substitutes`: likely words at a position of a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import Column, show, table, table_ending

if TYPE_CHECKING:
    from bilm.scoring.scorer import Substitute, Substitutes

COLUMNS = (
    Column("direction", str), Column("rank", int), Column("log_probability", float),
    Column("word", str),
)  # fmt: skip
NOTE = """
The sentence contains tokens separated by blanks, or text that --tokenize splits. The token at the
position is ignored. `forward` predicts from the tokens before the position and `backward` from
those after it, with natural log-probabilities; `both` ranks by the product of the two
probabilities, and its numbers are sums of logarithms. --output writes one row per direction and
word. A warning lists the other tokens that the
vocabulary does not contain; --json lists them under the key `unknown`.
"""


@command(notes=[NOTE, opt.SOFTMAX_NOTE, opt.MODEL_FORMS])
@opt.scorer_options
@opt.group(
    "Position",
    opt.option("--sentence", opt.TEXT, "Tokens separated by blanks.", required=True),
    opt.tokenize_option,
    opt.option("--position", opt.Integer(0), "Index of a token, from 0.", required=True),
    opt.option("--n", opt.Integer(1), "Number of words in each direction.", default=10),
)
@opt.group(
    "Results",
    opt.table_option,
    opt.flag("--json", "Print one JSON object: for each direction a list of [word, "
             "log-probability]."),
)  # fmt: skip
def substitutes(
    sentence: str, tokenize: str | None, position: int, n: int, output: str | None, json: bool,
    **model: str | None
) -> None:  # fmt: skip
    """List the most likely words at a position of a sentence.

    Examples:
      bilm substitutes --model run --sentence "The bank closed early ." --position 1
      bilm substitutes --model elmo --n 20 \\
          --sentence "She sat on the [?] of the river ." --position 4
    """
    from absl import logging

    from bilm.data.tokenization import tokenizer

    if output is not None:
        table_ending(output)
    words = tokenizer(tokenize)(sentence)
    scorer = opt.open_scorer(model)
    found = scorer.substitutes(words, position, n)
    others = [word for place, word in enumerate(words) if place != position]
    unknown = [word for word in others if scorer.known(word) != word]
    if unknown:
        logging.warning("not in the vocabulary: %s", " ".join(dict.fromkeys(unknown)))
    if output is not None:
        with table(output, COLUMNS, model.values()) as write:
            for direction, ranked in _directions(found).items():
                for rank, (word, value) in enumerate(ranked, start=1):
                    write((direction, rank, float(value), word))
    if json or output is None:
        show(found._asdict() | {"unknown": unknown}, _columns(found), json)


def _directions(found: Substitutes) -> dict[str, list[Substitute]]:
    """Return the words of each direction that the model has, and of both."""
    return {name: words for name, words in found._asdict().items() if isinstance(words, list)}


def _columns(found: Substitutes) -> str:
    """Return a column of text for each direction and for both."""
    columns = []
    for name, words in _directions(found).items():
        width = max(map(len, [name, *(word for word, _ in words)]))
        cells = [f"{word:<{width}} {value:>8.3f}" for word, value in words]
        columns.append([f"{name:<{width + 9}}", *cells])
    return "\n".join("   ".join(row).rstrip() for row in zip(*columns, strict=True))
