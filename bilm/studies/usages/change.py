"""How much words change between two groupings of usages, such as periods: see `measures`; and what
the table of changes answers, in plain words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.errors import DataError, OptionsError
from bilm.studies.usages.measures import FUNCTIONS, LARGEST, Resampling, ppmi_distances
from bilm.studies.usages.settings import DEFAULTS, LEVEL, MEASURES, MIN_USAGES, Settings
from bilm.studies.usages.usages import Usages
from bilm.studies.usages.usages_file import UsagesFile
from bilm.support import Progress, optional

if TYPE_CHECKING:
    import pandas

PROPER = "PROPN"  # the tag of proper nouns in Universal Dependencies
N_SPLITS = 200  # random splits, if nothing is resampled
CONFIDENCE = 0.95  # level of intervals
EPSILON = 1e-12  # difference of sums in another order
# Values of the column `answer`
CHANGED, NOT_SHOWN, CONTROL = "changed", "not shown to have changed", "control word"
FEW, NOT_TESTED = "too few usages", "not tested"


class Measured(NamedTuple):
    """A measure of one word; nan for what was not computed."""

    value: float
    same: float = math.nan  # value expected without change: the mean over random splits
    low: float = math.nan  # bounds of the interval
    high: float = math.nan
    p: float = math.nan  # p-value


def measure(
    name: str,
    usages: Usages,
    is_first: np.ndarray,
    layer: int | None = None,
    settings: Settings = DEFAULTS,
) -> Measured:
    """Measure the change of one word between two groupings.

    Args:
        name: one of `MEASURES` of `bilm.studies.usages.settings`.
        usages: the usages of the word in both groupings.
        is_first: which of them belong to the first grouping, boolean (N,).
        layer: number of the layer; None for the mean of the LSTM layers.
    Returns: nan if a grouping has fewer than two usages; no interval with fewer than `MIN_USAGES`.
    Raises: OptionsError if the layer is not stored; DataError for vectors that are not finite.
    """
    n_usages = min(is_first.sum(), (~is_first).sum())
    if n_usages < 2:
        return Measured(math.nan)
    layers = _lstm_layers(usages) if layer is None else [layer]
    vectors = np.mean([usages.vectors(number) for number in layers], axis=0, dtype=float)  # N, D
    resampling = Resampling(FUNCTIONS[name], vectors, is_first, settings.seed)
    value = float(resampling.values(is_first, ~is_first))

    # Random splits show which value to expect without change.
    splits = resampling.splits(settings.n_resamples or N_SPLITS)
    expected = float(splits.mean())
    subtracted = expected if FUNCTIONS[name].is_corrected else 0.0
    result = Measured(value - subtracted, expected - subtracted)
    if not settings.n_resamples:
        return result

    # The groupings themselves count as one of the splits, so that the p-value is never 0.
    n_as_large = (splits >= value - EPSILON).sum()
    result = result._replace(p=float((1 + n_as_large) / (1 + len(splits))))
    if n_usages < MIN_USAGES:
        return result

    # The bootstrap interval, shifted by the estimate of the bias
    draws = resampling.bootstrap(settings.n_resamples)
    bias = draws.mean() - value
    tails = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
    bounds = np.clip(np.quantile(draws, tails) - bias, 0, LARGEST)
    low, high = (bounds - subtracted).tolist()
    return result._replace(low=low, high=high)


def _lstm_layers(usages: UsagesFile | Usages) -> list[int]:
    """Return the numbers of the stored LSTM layers; layer 0 if no other is stored."""
    return [number for number in usages.layers if number] or [0]


def measure_change(usages: UsagesFile | Usages, settings: Settings = DEFAULTS) -> pandas.DataFrame:
    """Return the change of each word of a table between two groupings, a row per word and layer.
    An open table is read word by word. `bilm change --help` explains the columns; a word with fewer
    than two usages in a grouping has nan. Raises: OptionsError for groupings, layers or control
    words that do not exist."""
    pandas = optional("pandas", "analysis", "tables of usages")
    names = [grouping.name for grouping in usages.description.groupings]
    groupings = settings.between or names
    if len(groupings) != 2 or len(set(groupings) & set(names)) != 2:
        raise OptionsError(
            f"the groupings of the table are {', '.join(names)}, and {', '.join(groupings)} are "
            "selected; expected two different ones, such as --between then,now"
        )
    for word in settings.controls:
        if word not in usages.words:
            raise OptionsError(f"the control word {word!r} is not in the table of usages")
    stored = settings.layers or _lstm_layers(usages)
    measured: Sequence[int | None] = stored
    if not settings.layers and len(stored) > 1:
        measured = [None]  # the mean of the layers

    # The measures of each word and layer
    rows = []
    values: dict[str, list[Measured]] = {name: [] for name in settings.measures}
    frames = []  # of the compared usages
    bar = Progress("measuring change", "words", len(usages.words))
    for word, of_word in bar.over(usages.by_word(stored)):
        kept = _compared(of_word, settings, groupings)
        frames.append(kept.frame)
        is_first = (kept.frame["grouping"] == groupings[0]).to_numpy()
        for layer in measured:
            rows.append((word, "mean" if layer is None else layer))
            for name, of_measure in values.items():
                of_measure.append(measure(name, kept, is_first, layer, settings))

    # One table, with the columns of words repeated in each layer
    table = pandas.DataFrame(rows, columns=["word", "layer"])
    of_words = _columns_of_words(pandas.concat(frames), kept, groupings)
    table = table.join(of_words, on="word")
    n_usages = table[[f"usages_{name}" for name in groupings]].min(axis=1)
    has_enough = n_usages >= MIN_USAGES
    adjusted = optional("scipy.stats", "analysis", "tests").false_discovery_control
    for name, of_measure in values.items():
        columns = pandas.DataFrame(of_measure).add_prefix(f"{name}_")
        table = table.join(columns.rename(columns={f"{name}_value": name}))
        p_values = table.loc[has_enough, f"{name}_p"].dropna()
        table[f"{name}_q"] = p_values.groupby(table["layer"]).transform(adjusted)
    table.insert(2, "answer", answers_of(table, has_enough, settings))
    return table


def _is_proper(frame: pandas.DataFrame) -> pandas.Series:
    """Return whether each usage is a proper name, float; nan for an untagged first word."""
    is_capitalized = frame["form"].str[:1].str.isupper().astype(float)
    known = is_capitalized.where(frame["position"] > 0)
    return (frame["tag"] == PROPER).astype(float).where(frame["tag"].notna(), known)


def _compared(usages: Usages, settings: Settings, groupings: Sequence[str]) -> Usages:
    """Return the usages in some groupings that the settings keep."""
    frame = usages.frame
    kept = frame["grouping"].isin(groupings)
    if settings.tags is not None:
        if frame["tag"].isna().all():
            raise DataError("the table of usages contains no parts of speech; omit --tags")
        kept &= frame["tag"].isin(settings.tags)
    if not settings.proper_names:
        kept &= _is_proper(frame) != 1
    return usages.where(kept)


def _columns_of_words(
    frame: pandas.DataFrame, usages: Usages, groupings: Sequence[str]
) -> pandas.DataFrame:
    """Return the columns that do not depend on vectors, from the compared usages of all words;
    `usages` describes their table."""
    is_proper = frame.assign(proper=_is_proper(frame)).groupby(["word", "grouping"])["proper"]
    counts = usages.counts[list(groupings)]  # of all words
    n_tokens = np.array([usages.tokens[name] for name in groupings])
    axes = {"index": counts.index, "columns": groupings}
    columns = {
        "usages": is_proper.size().unstack().reindex(**axes).fillna(0).astype(int),
        "count": counts,
        "per_million": 1e6 * counts / np.maximum(1, n_tokens),
        "proper": is_proper.mean().unstack().reindex(**axes),
    }
    table = counts[[]]  # the words
    for name, by_grouping in columns.items():
        table = table.join(by_grouping.add_prefix(f"{name}_"))
    smoothed = (counts + 0.5) / (n_tokens + 1)
    table["log_ratio"] = np.log2(smoothed[groupings[1]] / smoothed[groupings[0]])
    table["ppmi"] = table.index.map(ppmi_distances(frame, groupings))
    return table


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
