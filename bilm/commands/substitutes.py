"""`bilm substitutes`: likely words at a position of a sentence."""

from itertools import chain

from bilm.commands import options as opt
from bilm.commands import scoring_options as scoring
from bilm.commands.main import command
from bilm.commands.output import as_json, print_table

NOTE = """
The sentence contains tokens separated by blanks, or text that --tokenize splits. The token at the
position is ignored. `forward` predicts from the tokens before the position and `backward` from
those after it, with natural log-probabilities; `both` ranks by the product of the two
probabilities, divided by the probability of the word (Zipf's law by its rank in the vocabulary),
because the product counts it twice. A warning lists the other tokens that the
vocabulary does not contain; --json lists them under the key `unknown`.
"""


@command(notes=[NOTE, opt.SOFTMAX_NOTE, opt.MODEL_FORMS])
@scoring.model_options
@opt.group(
    "Position",
    opt.option("--sentence", opt.TEXT, "Tokens separated by blanks.", required=True),
    opt.tokenize_option,
    opt.option("--position", opt.Integer(0), "Index of a token, from 0.", required=True),
    opt.option("--n", opt.Integer(1), "Number of words in each direction.", default=10),
)
@opt.group(
    "Results",
    opt.flag("--json", "Print one JSON object: for each direction a list of [word, "
             "log-probability]."),
)  # fmt: skip
def substitutes(
    model: scoring.Model, sentence: str, tokenize: str | None, position: int,
    n: int, json: bool
) -> None:  # fmt: skip
    """List the most likely words at a position of a sentence.

    Examples:
      bilm substitutes --model run --sentence "The bank closed early ." --position 1
      bilm substitutes --model elmo --n 20 \\
          --sentence "She sat on the [?] of the river ." --position 4
    """
    from absl import logging

    from bilm.data.tokenization import tokenizer

    words = tokenizer(tokenize)(sentence)
    scorer = model.scorer(scoring.n_predictions(words), warns_of_signs=True)
    likeliest = scorer.substitutes(words, position, n)
    others = [word for i, word in enumerate(words) if i != position]
    unknown = [word for word in others if word not in scorer.vocabulary]
    if unknown:
        logging.warning("not in the vocabulary: %s", " ".join(dict.fromkeys(unknown)))
    if json:
        print(as_json(likeliest._asdict() | {"unknown": unknown}))
        return

    lists = {"forward": likeliest.forward}
    if likeliest.backward is not None and likeliest.both is not None:
        lists |= {"backward": likeliest.backward, "both": likeliest.both}
    columns: list[tuple[str, type]] = []
    for name in lists:
        columns += [(name, str), ("", float)]
    rows = zip(*lists.values(), strict=True)
    print_table(columns, (list(chain.from_iterable(row)) for row in rows))
