"""Gold scores of change: DWUG's statistics, and lists of words with scores."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from bilm.data.text import read_lines
from bilm.errors import DataError

LEMMA = "lemma"


def read_gold(path: str | Path, column: str = "change_graded") -> dict[str, float]:
    """Read a score per word.

    Args:
        path: `stats_groupings.csv` of a DWUG data set: separated by tabs, with a header that
            contains `lemma`. Or lines with a word and a number, separated by a tab, as in
            `truth/graded.txt` of SemEval-2020 task 1.
        column: column of the scores, for files with a header.
    Raises: DataError, naming file and line, for a missing column or a score that is not a number.
    """
    lines = [(number, line) for number, line in read_lines(str(path)) if line]
    rows = list(csv.reader((line for _, line in lines), delimiter="\t", quoting=csv.QUOTE_NONE))
    if not rows:
        raise DataError(f"{path}: is empty; expected words with scores")
    if LEMMA in rows[0]:
        names = rows[0]
        if column not in names:
            raise DataError(
                f"{path}: the column {column} is missing; it contains {', '.join(names)}; select "
                "one with --gold_column"
            )
        word_at, score_at, start = names.index(LEMMA), names.index(column), 1
    else:
        word_at, score_at, start = 0, 1, 0
    scores: dict[str, float] = {}
    for (number, _), row in zip(lines[start:], rows[start:], strict=True):
        if start:
            row += [""] * (len(rows[0]) - len(row))  # empty fields at the end of a line
        try:
            word, score = row[word_at], row[score_at].strip()
            value = float(score) if score else math.nan
        except (IndexError, ValueError) as error:
            raise DataError(
                f"{path}, line {number}: expected a word and a number separated by a tab"
            ) from error
        if word in scores:
            raise DataError(f"{path}, line {number}: {word!r} has a second score")
        if not math.isnan(value):
            scores[word] = value
    return scores
