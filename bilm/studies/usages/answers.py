"""What a table of change answers, in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bilm.errors import DataError
from bilm.studies.usages.settings import DEFAULTS, LEVEL, MEASURES, MIN_USAGES, Settings

if TYPE_CHECKING:
    import pandas

# Values of the column `answer`
CHANGED, NOT_SHOWN, CONTROL = "changed", "not shown to have changed", "control word"
FEW, NOT_TESTED = "too few usages", "not tested"


def answers_of(
    table: pandas.DataFrame, has_enough: pandas.Series, settings: Settings
) -> np.ndarray:
    """Return the answer for each row of a table of `measure_change`, by its first measure and the
    rule in `bilm change --help`. `has_enough`: whether a word has `MIN_USAGES` in both groupings.
    Raises: DataError for a control word with fewer."""
    cited = settings.measures[0]
    is_control = table["word"].isin(settings.controls)
    unusable = table["word"][is_control & ~has_enough]
    if len(unusable):
        raise DataError(
            f"the control word {unusable.iloc[0]!r} has fewer than {MIN_USAGES} usages in a "
            "grouping; use others for --controls"
        )
    excess = table[cited] - table[f"{cited}_same"]
    of_controls = excess[is_control].groupby(table["layer"]).max()
    exceeds = ~(excess <= table["layer"].map(of_controls))  # True without control words

    adjusted = table[f"{cited}_q"]
    answers = {
        FEW: ~has_enough,
        CONTROL: is_control,
        NOT_TESTED: adjusted.isna(),
        CHANGED: (adjusted <= LEVEL) & exceeds,
    }
    return np.select(list(answers.values()), list(answers), NOT_SHOWN)


def ranked(table: pandas.DataFrame, measure: str) -> pandas.DataFrame:
    """Return the rows of the last layer, ranked by a measure; words with few usages are last."""
    rows = table[table["layer"] == table["layer"].iloc[-1]]
    is_few = rows["answer"] == FEW
    return rows.assign(is_few=is_few).sort_values(["is_few", measure], ascending=[True, False])


def groupings_of(table: pandas.DataFrame) -> list[str]:
    """Return the names of the two compared groupings."""
    return [name.removeprefix("usages_") for name in table if name.startswith("usages_")]


def in_words(table: pandas.DataFrame, settings: Settings = DEFAULTS) -> list[str]:
    """Return a line for each word of a table of `measure_change`, in its last layer, ranked by the
    first measure, and lines about what to cite and what the answers mean."""
    cited = settings.measures[0]
    rows = ranked(table, cited)
    groupings = groupings_of(table)
    lines = []
    for row in rows.to_dict("records"):
        n_usages = " + ".join(f"{row[f'usages_{name}']:,}" for name in groupings)
        line = f"{row['word']}: {row['answer']}; {n_usages} usages"
        if row["answer"] != FEW:
            line += f"; {cited} {row[cited]:.3f}, without change {row[f'{cited}_same']:.3f}"
        if row["answer"] not in (FEW, NOT_TESTED):
            line += f", adjusted p {row[f'{cited}_q']:.2g}"

        # A proper name in one text only differs from a common noun in the other.
        mostly = [name for name in groupings if row[f"proper_{name}"] > 0.5]
        if len(mostly) == 1 and row["answer"] != FEW:
            line += f"; {row[f'proper_{mostly[0]}']:.0%} in {mostly[0]} are a proper name"
        lines.append(line)

    n_tested = rows[f"{cited}_q"].notna().sum()
    rule = f"{cited}_q is at most {LEVEL:g}"
    advice = "read the usages, and name words that did not change with --controls"
    if settings.controls:
        rule += f", and {cited} exceeds its control more than for {', '.join(settings.controls)}"
        advice = "read the usages"
    return [
        *lines,
        f"{n_tested:,} of {len(rows):,} words were tested, with at least {MIN_USAGES} usages in "
        f"{' and in '.join(groupings)}.",
        f"Cite {cited} ({MEASURES[cited].format(*groupings)}), its control {cited}_same (the "
        f"mean over random splits of the same usages) and the adjusted p-value {cited}_q.",
        f"A word has changed if {rule}. Topic or author can also differ: {advice}.",
    ]
