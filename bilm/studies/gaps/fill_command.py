"""`bilm fill`: candidates for lost words and letters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from cloup.constraints import constraint, mutually_exclusive

from bilm.commands import Row, as_json, command, printable, write_table
from bilm.commands import options as opt
from bilm.commands import scoring_options as scoring

if TYPE_CHECKING:
    from bilm.studies.gaps.filling import Gap

    Filled = tuple[list[str], list[Gap]]  # the tokens of a sentence, and its gaps

GAP_COLUMNS = {
    "position": int, "gap": str, "rank": int, "word": str, "probability": float, "none": float,
}  # fmt: skip
NOTE = """
A gap is a token: [MASK] for a lost word; ki[..]g for a word without two letters; k[---] for a word
without an unknown number of letters. --tokenize does not split these marks. Several gaps of a
sentence are filled jointly. The 40 candidates (or --n) that fit best, and those that fit as well as
the last, are compared by the whole sentence. The column none is the probability that the word is
none of them; they share the rest. A gap that no candidate matches has no rows.
"""


@command(tensorflow=False, notes=[NOTE, *scoring.NOTES])
@scoring.model_options
@scoring.text_options
@opt.group(
    "Candidates",
    opt.option("--mask", opt.TEXT, "Token that represents a lost word.", default="[MASK]"),
    opt.option("--words", opt.FETCHED, "File of more candidates, separated by whitespace."),
    scoring.memory_option,
    opt.option("--n", opt.Integer(1, 1000), "Number of words for each gap.", default=10),
)
@opt.group(
    "Results",
    opt.table_option,
    opt.flag("--json", "Print one JSON object for each gap, on one line."),
    opt.flag("--restored", "Print the text with the best words."),
)  # fmt: skip
@constraint(mutually_exclusive, ["output", "json", "restored"])
def fill(
    model: scoring.Model, input_: str, mask: str, words: str | None, n: int,
    output: str | None, json: bool, restored: bool, **reading: Any
) -> None:  # fmt: skip
    """List the most probable words for gaps in a text.

    Examples:
      echo "ƕa nu [MASK]" | bilm fill --model run --n 3
      bilm fill --model run --input inscriptions.txt --words names.txt --output gaps.csv
      bilm fill --model run --input damaged.txt --restored > restored.txt
    """
    from absl import logging

    from bilm.data import read_lines
    from bilm.scoring import Measurement
    from bilm.studies.gaps.filling import Filler, n_predictions
    from bilm.studies.gaps.gap_marks import marks, pattern

    text = scoring.Text(input_, marks=marks(mask), are_gaps=True, **reading)

    def n_computed(tokens: list[str]) -> int:
        n_gaps = sum(pattern(token, mask) is not None for token in tokens)
        return n_predictions(len(tokens), n_gaps)

    scorer = text.scorer(model, n_computed)
    lines = read_lines(words) if words else ()
    others = (word for _, line in lines for word in line.split())
    filler = Filler(scorer, others, model.memory)

    def filled(sentences: Iterator[list[str]]) -> Iterator[Filled]:
        for tokens in sentences:
            yield tokens, filler.fill(tokens, n, mask)

    columns = text.with_columns(GAP_COLUMNS)
    sentences = text.scored(filled, with_empty=restored)
    if restored:
        for _, (tokens, gaps) in sentences:
            best = {gap.position: gap.candidates[0].word for gap in gaps if gap.candidates}
            print(printable(" ".join(best.get(i, token) for i, token in enumerate(tokens))))
    elif json:
        for place, (_, gaps) in sentences:
            for gap in gaps:
                print(as_json(place | gap._asdict()))
    else:
        write_table(output, columns, _rows(sentences), [*text.files, *model.files, words])

    measured = Measurement.of(model.stored)
    if measured is not None and measured.compared is not None:
        unknown = 100 * measured.compared.unknown
        logging.info("words of held-out text that the vocabulary lacks: %.1f %%", unknown)
    if not filler.counts["gaps"]:
        logging.warning("gaps: 0, expected a token %s, or such as ki[..]g or k[---]", mask)
    for name, count in filler.counts.items():
        if count:
            log = logging.info if name == "gaps" else logging.warning
            log("%s: %d", name, count)


def _rows(sentences: Iterable[tuple[scoring.Place, Filled]]) -> Iterator[Row]:
    """Yield the place and the values of `GAP_COLUMNS` of each candidate."""
    for place, (_, gaps) in sentences:
        for gap in gaps:
            for rank, candidate in enumerate(gap.candidates, 1):
                yield *place.values(), gap.position, gap.token, rank, *candidate, gap.none
