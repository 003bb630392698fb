"""`bilm fill`: candidates for lost words and letters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

from cloup.constraints import constraint, mutually_exclusive

from bilm.commands import options as opt
from bilm.commands import scoring_options as scoring
from bilm.commands.main import command
from bilm.commands.output import Column, as_json, printable, table

GAP_COLUMNS = (
    Column("position", int), Column("gap", str), Column("rank", int), Column("word", str),
    Column("probability", float),
)  # fmt: skip
NOTE = """
A gap is a token: [MASK] for a lost word; ki[..]g for a word without two letters; k[---] for a word
without an unknown number of letters. Several gaps of a sentence are filled jointly. Probabilities
are those among the 40 candidates (or --n) that fit best, by the whole sentence. A gap that no
candidate matches has no rows.
"""


@command(notes=[NOTE, *scoring.NOTES])
@scoring.model_options
@scoring.text_options
@opt.group(
    "Candidates",
    opt.option("--mask", opt.TEXT, "Token that represents a lost word.", default="[MASK]"),
    opt.option("--words", opt.FETCHED, "File of more candidates, separated by whitespace."),
    scoring.memory_option,
    opt.option("--n", opt.Integer(1), "Number of words for each gap.", default=10),
)
@opt.group(
    "Results",
    opt.table_option,
    opt.flag("--json", "Print one JSON object for each gap, on one line."),
    opt.flag("--restored", "Print the text with the best words."),
)  # fmt: skip
@constraint(mutually_exclusive, ["output", "json", "restored"])
def fill(
    files: scoring.Files, text: scoring.Text, mask: str, words: str | None, memory: str | None,
    n: int, output: str | None, json: bool, restored: bool
) -> None:  # fmt: skip
    """List the most probable words for gaps in a text.

    Examples:
      echo "ƕa nu [MASK]" | bilm fill --model run --n 3
      bilm fill --model run --input inscriptions.txt --words names.txt --output gaps.csv
      bilm fill --model run --input damaged.txt --restored > restored.txt
    """
    from absl import logging

    from bilm.data.text import read_lines
    from bilm.scoring.filling import Gap
    from bilm.scoring.memory import Memory

    more = () if words is None else (w for _, line in read_lines(words) for w in line.split())
    scorer = files.open()
    recall = None if memory is None else Memory.load(memory, scorer.words)
    filler = scorer.filler(more, recall)

    def filled(sentences: Iterator[list[str]]) -> Iterator[tuple[list[str], list[Gap]]]:
        return ((tokens, filler.fill(tokens, n, mask)) for tokens in sentences)

    names = [column.name for column in text.columns]
    columns = [*text.columns, *GAP_COLUMNS]
    is_table, done = not (json or restored), -1
    n_gaps, unfilled, others = 0, list[str](), list[str]()
    inputs = [*text.files, *files, *filter(None, [words, memory])]
    with table(output, columns, inputs) if is_table else nullcontext() as write:
        for place, (tokens, gaps) in text.scored(scorer, filled):
            n_gaps += len(gaps)
            unfilled += [gap.token for gap in gaps if not gap.candidates]
            marks = {gap.token for gap in gaps}
            others += [t for t in tokens if ("[" in t or "]" in t) and t not in marks]
            if restored:
                print("\n" * (int(place[-1]) - done - 1), end="")  # sentences without words
                done = int(place[-1])
                best = {gap.position: gap.candidates[0].word for gap in gaps if gap.candidates}
                print(printable(" ".join(best.get(i, token) for i, token in enumerate(tokens))))
            elif json:
                for gap in gaps:
                    print(as_json(dict(zip(names, place, strict=True)) | gap._asdict()))
            elif write is not None:
                for gap in gaps:
                    for rank, candidate in enumerate(gap.candidates, 1):
                        write((*place, gap.position, gap.token, rank, *candidate))
    logging.info("gaps: %d", n_gaps)
    for found, what in (unfilled, "without a candidate"), (others, "other tokens with brackets"):
        if found:
            logging.warning("%s: %d, such as %s", what, len(found), found[0])
