"""`bilm minimal-pairs`: how often a model prefers the acceptable sentence of a pair."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from cloup.constraints import If, constraint, require_all

from bilm.commands import MISSING, Row, as_json, command, print_table, write_table
from bilm.commands import options as opt
from bilm.commands import scoring_options as scoring

if TYPE_CHECKING:
    from bilm.studies.reading.minimal_pairs import Accuracy, MinimalPair, PairResults, PairScore

DIRECTIONS = ("forward", "backward", "both")
GROUP_COLUMNS = {
    "group": str, "linguistics_term": str, "UID": str, "pairs": int, "unknown_pairs": int,
    **dict.fromkeys(DIRECTIONS, float), **{f"{name}_ties": int for name in DIRECTIONS},
}  # fmt: skip
PAIR_COLUMNS = {
    "pair": int, "linguistics_term": str, "UID": str, **dict.fromkeys(DIRECTIONS, float),
    "unknown": str, "sentence_good": str, "sentence_bad": str,
}  # fmt: skip
PRINTED_COLUMNS = {
    "accuracy in %": str, "pairs": int, **dict.fromkeys(DIRECTIONS, float), "ties": int,
    "unknown": int,
}  # fmt: skip
NAMES = {"known": "without unknown words", "overall": "overall"}
NOTE = """
--input is one or more tables (.jsonl, .ndjson, .csv, .tsv or .parquet, also compressed)
with the columns of BLiMP (Warstadt et al. 2020, arXiv:1912.00582); other columns are ignored:
  sentence_good, sentence_bad  the acceptable and the unacceptable sentence
  linguistics_term             phenomenon, such as island_effects
  UID                          kind of pair within the phenomenon, such as wh_island

A pair is correct if the acceptable sentence has the higher probability; `both` adds the
log-probabilities of both directions. Ties, which differ by at most 0.0001 bits, are not correct;
`ties` is their greatest number in a direction. `unknown` counts pairs with a word that the
vocabulary lacks. --per_pair writes differences log2 p(good) - log2 p(bad) in bits.
"""


@command(notes=[NOTE, opt.SOFTMAX_NOTE, opt.MODEL_FORMS])
@scoring.model_options
@opt.group(
    "Pairs",
    opt.option("--input", opt.FILE_OR_URL, "Table of minimal pairs, or a quoted pattern.",
               dest="input_", metavar="PATTERN", required=True),
    opt.quoting_option,
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
    model: scoring.Model, input_: str, output: str | None, per_pair: bool,
    json: bool, **reading: Any
) -> None:  # fmt: skip
    """Measure accuracy on minimal pairs of sentences.

    A minimal pair is an acceptable and an unacceptable sentence that differ as little as possible.
    Sentences are split at blanks, or by --tokenize; they must be split like the training text.

    Examples:
      bilm minimal-pairs --model novels-en --input pairs.jsonl
      bilm minimal-pairs --model novels-en --input 'blimp/data/*.jsonl' --tokenize en --json
      bilm minimal-pairs --model run --input pairs.csv --output pairs_scored.csv --per_pair
    """
    from bilm.data import matching_files
    from bilm.errors import DataError
    from bilm.studies.reading.minimal_pairs import PairResults, read_pairs, score_pairs
    from bilm.support import Progress

    paths = matching_files(input_)
    pairs: list[MinimalPair] = []
    bar = Progress("reading", "pairs")
    for path in paths:
        pairs += bar.over(read_pairs(path, **reading))
    if not pairs:
        raise DataError(f"{input_}: found no pairs, expected at least one")
    n_tokens = sum(map(scoring.n_predictions, chain.from_iterable(pair[:2] for pair in pairs)))
    scorer = model.scorer(n_tokens, warns_of_signs=True)
    bar = Progress("scoring", "pairs", len(pairs))
    scores = list(bar.over(score_pairs(scorer, pairs)))
    groups = list(_groups(PairResults.of(scores)))

    if output is not None:
        inputs = [*paths, *model.files]
        if per_pair:
            write_table(output, PAIR_COLUMNS, _pair_rows(scores), inputs)
        else:
            rows = (list(group.values()) for group in groups)
            write_table(output, GROUP_COLUMNS, rows, inputs)
    if json:
        print(as_json({"groups": groups}))
    else:
        print_table(PRINTED_COLUMNS.items(), map(_printed_row, groups))


def _pair_rows(scores: list[PairScore]) -> Iterator[Row]:
    for number, score in enumerate(scores):
        good, bad, phenomenon, uid = score.pair
        bits = [score.preference.get(direction, MISSING) for direction in DIRECTIONS]
        words = " ".join(score.unknown), " ".join(good), " ".join(bad)
        yield number, phenomenon, uid, *bits, *words


def _groups(results: PairResults) -> Iterator[dict[str, Any]]:
    """Yield the columns of all groups, the UIDs of a phenomenon after it."""
    for phenomenon, of_phenomenon in results.phenomena.items():
        yield _columns("phenomenon", phenomenon, "", of_phenomenon)
        for (term, uid), of_uid in results.uids.items():
            if term == phenomenon:
                yield _columns("UID", phenomenon, uid, of_uid)
    yield _columns("known", "", "", results.known)
    yield _columns("overall", "", "", results.overall)


def _columns(kind: str, phenomenon: str, uid: str, counts: Accuracy) -> dict[str, Any]:
    percents = [counts.percent.get(direction, MISSING) for direction in DIRECTIONS]
    ties = [counts.n_ties[direction] for direction in DIRECTIONS]
    values = kind, phenomenon, uid, counts.n_pairs, counts.n_unknown, *percents, *ties
    return dict(zip(GROUP_COLUMNS, values, strict=True))


def _printed_row(group: dict[str, Any]) -> Row:
    names = {"phenomenon": group["linguistics_term"], "UID": f"  {group['UID']}"} | NAMES
    percents = [round(group[direction], 1) for direction in DIRECTIONS]
    n_ties = max(group[f"{direction}_ties"] for direction in DIRECTIONS)
    return names[group["group"]], group["pairs"], *percents, n_ties, group["unknown_pairs"]
