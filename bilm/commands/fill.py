"""`bilm fill`: candidates for lost words and letters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from cloup.constraints import constraint, mutually_exclusive

from bilm.commands import options as opt
from bilm.commands import scoring_options as scoring
from bilm.commands.main import command
from bilm.commands.output import Column, Write, as_json, printable, table

if TYPE_CHECKING:
    from bilm.scoring.filling import Gap

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


@command(tensorflow=False, notes=[NOTE, *scoring.NOTES])
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
    from bilm.scoring.filling import n_predictions
    from bilm.scoring.memory.file import StoredMemory

    scorer = text.scorer(files, partial(n_predictions, mask=mask))
    recall, exponents = StoredMemory.load(memory, scorer.words) if memory else (None, None)
    filler = scorer.filler(_words_of(words) if words else [], recall, exponents)

    def filled(sentences: Iterator[list[str]]) -> Iterator[tuple[list[str], list[Gap]]]:
        return ((tokens, filler.fill(tokens, n, mask)) for tokens in sentences)

    counts = GapCounts()
    sentences = counts.counted(
        FilledSentence(place, tokens, gaps) for place, (tokens, gaps) in text.scored(filled)
    )
    if restored:
        _print_restored(sentences)
    elif json:
        _print_gaps(sentences, [column.name for column in text.columns])
    else:
        inputs = [*text.files, *files, words, memory]
        with table(output, [*text.columns, *GAP_COLUMNS], inputs) as write:
            _write_rows(sentences, write)
    counts.log()


def _words_of(path: str) -> Iterator[str]:
    """Yield the words of a file."""
    from bilm.data.text import read_lines

    for _, line in read_lines(path):
        yield from line.split()


class FilledSentence(NamedTuple):
    """A sentence and its gaps.

    Fields:
        place: values of the columns of its place; the last one is the number of its line.
        tokens: the words and marks of gaps.
        gaps: the gaps.
    """

    place: scoring.Place
    tokens: list[str]
    gaps: list[Gap]


class GapCounts:
    """Counts gaps, those without a candidate, and other tokens with brackets."""

    def __init__(self) -> None:
        self.n_gaps = 0
        self.unfilled: list[str] = []
        self.others: list[str] = []

    def counted(self, sentences: Iterable[FilledSentence]) -> Iterator[FilledSentence]:
        """Yield the sentences, and count their gaps."""
        for sentence in sentences:
            marks = {gap.token for gap in sentence.gaps}
            others = [token for token in sentence.tokens if token not in marks]
            self.n_gaps += len(sentence.gaps)
            self.unfilled += [gap.token for gap in sentence.gaps if not gap.candidates]
            self.others += [token for token in others if "[" in token or "]" in token]
            yield sentence

    def log(self) -> None:
        """Log the counts."""
        from absl import logging

        logging.info("gaps: %d", self.n_gaps)
        if self.unfilled:
            logging.warning(
                "without a candidate: %d, such as %s", len(self.unfilled), self.unfilled[0]
            )
        if self.others:
            logging.warning(
                "other tokens with brackets: %d, such as %s", len(self.others), self.others[0]
            )


# --- forms of the result ---


def _print_restored(sentences: Iterable[FilledSentence]) -> None:
    """Print the text with the best words, one sentence per line, and its blank lines."""
    n_lines = 0
    for place, tokens, gaps in sentences:
        number = int(place[-1])
        print("\n" * (number - n_lines), end="")  # sentences without words
        best = {gap.position: gap.candidates[0].word for gap in gaps if gap.candidates}
        print(printable(" ".join(best.get(i, token) for i, token in enumerate(tokens))))
        n_lines = number + 1


def _print_gaps(sentences: Iterable[FilledSentence], place_names: list[str]) -> None:
    """Print one JSON object for each gap."""
    for place, _, gaps in sentences:
        of_sentence = dict(zip(place_names, place, strict=True))
        for gap in gaps:
            print(as_json(of_sentence | gap._asdict()))


def _write_rows(sentences: Iterable[FilledSentence], write: Write) -> None:
    """Write a row for each candidate."""
    for place, _, gaps in sentences:
        for gap in gaps:
            for rank, candidate in enumerate(gap.candidates, 1):
                write((*place, gap.position, gap.token, rank, *candidate))
