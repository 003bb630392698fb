"""`bilm minimal-pairs`: how often a model prefers the acceptable sentence of a pair."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import starmap
from operator import itemgetter
from typing import TYPE_CHECKING

from cloup.constraints import If, constraint, require_all

from bilm.commands import options as opt
from bilm.commands import scoring_options as scoring
from bilm.commands.main import command
from bilm.commands.output import Column, Row, as_json, print_table, table

if TYPE_CHECKING:
    from bilm.analysis.minimal_pairs import Accuracy, PairResults, PairScore

NAN = float("nan")
DIRECTIONS = ("forward", "backward", "both")
GROUP_COLUMNS = (
    Column("group", str), Column("linguistics_term", str), Column("UID", str),
    Column("pairs", int), Column("unknown_pairs", int),
    *(Column(name, float) for name in DIRECTIONS),
    *(Column(f"{name}_ties", int) for name in DIRECTIONS),
)  # fmt: skip
PAIR_COLUMNS = (
    Column("pair", int), Column("linguistics_term", str), Column("UID", str),
    *(Column(name, float) for name in DIRECTIONS),
    Column("unknown", str), Column("sentence_good", str), Column("sentence_bad", str),
)  # fmt: skip
PRINTED_COLUMNS = (
    Column("accuracy in %", str), Column("pairs", int),
    *(Column(name, float) for name in DIRECTIONS), Column("ties", int), Column("unknown", int),
)  # fmt: skip
NAMES = {"known": "without unknown words", "overall": "overall"}
NOTE = """
--input is one or more tables (.jsonl, .ndjson, .csv, .tsv or .parquet, also compressed)
with the columns of BLiMP (Warstadt et al. 2020, arXiv:1912.00582); other columns are ignored:
  sentence_good, sentence_bad  the acceptable and the unacceptable sentence
  linguistics_term             phenomenon, such as island_effects
  UID                          kind of pair within the phenomenon, such as wh_island

A pair is correct if the acceptable sentence has the higher probability; `both` compares the sums of
the log-probabilities of both directions. Accuracy is in percent of all pairs of a group. A tie is a
pair whose sentences differ by at most 0.0001 bits; it is not correct. `ties` is the greatest number
of ties in a direction. `unknown` is the number of pairs with a word that the vocabulary does not
contain; such words are scored as <UNK>. The line `without unknown words` leaves these pairs out.
--per_pair writes differences log2 p(good) - log2 p(bad) in bits.
"""


@command(notes=[NOTE, opt.SOFTMAX_NOTE, opt.MODEL_FORMS])
@scoring.model_options
@opt.group(
    "Pairs",
    opt.option("--input", opt.FILE_OR_URL, "Table of minimal pairs, or a quoted pattern.",
               dest="input_", metavar="PATTERN", required=True),
    opt.bad_utf8_option,
    opt.tokenize_option,
)  # fmt: skip
@opt.group(
    "Results",
    opt.table_option,
    opt.flag("--per_pair", "Write one row per pair to --output instead of one row per group."),
    opt.flag("--json", "Print one JSON object, with a row per group."),
)
@constraint(If("per_pair", require_all), ["output"])
def minimal_pairs(
    files: scoring.Files, input_: str, on_bad_utf8: str, tokenize: str | None, output: str | None,
    per_pair: bool, json: bool
) -> None:  # fmt: skip
    """Measure accuracy on minimal pairs of sentences.

    A minimal pair is an acceptable and an unacceptable sentence that differ as little as possible.
    Sentences are split at blanks, or by --tokenize. Tokenize them like the training text of the
    model.

    Examples:
      bilm minimal-pairs --model novels-en --input pairs.jsonl
      bilm minimal-pairs --model novels-en --input 'blimp/data/*.jsonl' --tokenize en --json
      bilm minimal-pairs --model run --input pairs.csv --output pairs_scored.csv --per_pair
    """
    from bilm.analysis.minimal_pairs import PairResults, read_pairs, score_pairs
    from bilm.data.signs import TextSigns
    from bilm.data.text import matching_files
    from bilm.errors import DataError
    from bilm.support.progress import progress

    paths = matching_files(input_)
    with progress("reading", "pairs") as shown:
        pairs = [
            pair for path in paths for pair in shown.over(read_pairs(path, tokenize, on_bad_utf8))
        ]
    if not pairs:
        raise DataError(f"{input_}: found no pairs, expected at least one")
    scorer = files.open()
    signs = TextSigns(input_, frozenset(scorer.words))
    with progress("scoring", "pairs", len(pairs)) as shown:
        scores = list(shown.over(score_pairs(scorer, signs.watch(pairs, itemgetter(0)))))
    groups = list(_groups(PairResults.of(scores)))
    if output is not None:
        by_pair, by_group = starmap(_pair_row, enumerate(scores)), starmap(_group_row, groups)
        with table(output, PAIR_COLUMNS if per_pair else GROUP_COLUMNS, [*paths, *files]) as write:
            for row in by_pair if per_pair else by_group:
                write(row)
    if json:
        names = [column.name for column in GROUP_COLUMNS]
        print(as_json({"groups": [dict(zip(names, _group_row(*g), strict=True)) for g in groups]}))
    else:
        print_table(PRINTED_COLUMNS, starmap(_printed_row, groups))


def _pair_row(number: int, found: PairScore) -> Row:
    good, bad, phenomenon, uid = found.pair
    bits = (found.preference.get(name, NAN) for name in DIRECTIONS)
    return number, phenomenon, uid, *bits, " ".join(found.unknown), " ".join(good), " ".join(bad)


def _groups(results: PairResults) -> Iterator[tuple[str, str, str, Accuracy]]:
    """Yield the kind, the phenomenon, the UID and the counts of each group."""
    for phenomenon, found in results.phenomena.items():
        yield "phenomenon", phenomenon, "", found
        for (term, uid), part in results.uids.items():
            if term == phenomenon:
                yield "UID", phenomenon, uid, part
    yield "known", "", "", results.known
    yield "overall", "", "", results.overall


def _group_row(kind: str, phenomenon: str, uid: str, found: Accuracy) -> Row:
    accuracies = (found.percent.get(direction, NAN) for direction in DIRECTIONS)
    ties = (found.n_ties.get(direction, 0) for direction in DIRECTIONS)
    return kind, phenomenon, uid, found.n_pairs, found.n_unknown, *accuracies, *ties


def _printed_row(kind: str, phenomenon: str, uid: str, found: Accuracy) -> Row:
    name = NAMES.get(kind) or phenomenon * (not uid) or f"  {uid}"
    accuracies = (round(found.percent.get(direction, NAN), 1) for direction in DIRECTIONS)
    return name, found.n_pairs, *accuracies, max(found.n_ties.values(), default=0), found.n_unknown
