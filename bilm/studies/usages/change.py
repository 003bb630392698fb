"""How much words change between two groupings of usages, such as periods: see `measures`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.errors import DataError, OptionsError
from bilm.studies.usages.answers import answers_of
from bilm.studies.usages.measures import FUNCTIONS, LARGEST, Resampling, ppmi_distances
from bilm.studies.usages.settings import DEFAULTS, MIN_USAGES, Settings
from bilm.studies.usages.usages import Usages
from bilm.studies.usages.usages_file import UsagesFile
from bilm.support import Progress, optional

if TYPE_CHECKING:
    import pandas

PROPER = "PROPN"  # the tag of proper nouns in Universal Dependencies
N_SPLITS = 200  # random splits, if nothing is resampled
CONFIDENCE = 0.95  # level of intervals
EPSILON = 1e-12  # difference of sums in another order


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
    value = resampling.value()

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
    """Measure the change of every word of a table between two groupings.

    Args:
        usages: an open table, whose words are read one by one, or usages in memory.
    Returns: a data frame with a row per word and layer. `bilm change --help` explains the columns;
        a word with fewer than two usages in a grouping has nan.
    Raises: OptionsError for groupings, layers or control words that do not exist.
    """
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
    compared: list[Usages] = []  # without vectors
    bar = Progress("measuring change", "words", len(usages.words))
    for word, of_word in bar.over(usages.by_word(stored)):
        kept = _compared(of_word, settings, groupings)
        compared.append(replace(kept, arrays={}))
        is_first = (kept.frame["grouping"] == groupings[0]).to_numpy()
        for layer in measured:
            rows.append((word, "mean" if layer is None else layer))
            for name, of_measure in values.items():
                of_measure.append(measure(name, kept, is_first, layer, settings))
    if not compared:
        raise DataError("the table contains no usages; write it with words that occur in the texts")

    # One table, with the columns of words repeated in each layer
    table = pandas.DataFrame(rows, columns=["word", "layer"])
    table = table.join(_columns_of_words(compared, groupings), on="word")
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


def _columns_of_words(compared: Sequence[Usages], groupings: Sequence[str]) -> pandas.DataFrame:
    """Return the columns that do not depend on vectors, from the compared usages of each word."""
    pandas = optional("pandas", "analysis", "tables of usages")
    frame = pandas.concat([usages.frame for usages in compared])
    is_proper = frame.assign(proper=_is_proper(frame)).groupby(["word", "grouping"])["proper"]
    counts = compared[0].counts[list(groupings)]  # of all words
    n_tokens = np.array([compared[0].tokens[name] for name in groupings])
    columns = {
        "usages": is_proper.size().unstack(),
        "count": counts,
        "per_million": 1e6 * counts / np.maximum(1, n_tokens),
        "proper": is_proper.mean().unstack(),
    }
    table = pandas.DataFrame(index=counts.index)
    for name, by_grouping in columns.items():
        every = by_grouping.reindex(index=counts.index, columns=groupings)
        table = table.join(every.add_prefix(f"{name}_"))
    of_usages = [f"usages_{name}" for name in groupings]
    table[of_usages] = table[of_usages].fillna(0).astype(int)
    smoothed = (counts + 0.5) / (n_tokens + 1)
    table["log_ratio"] = np.log2(smoothed[groupings[1]] / smoothed[groupings[0]])
    table["ppmi"] = table.index.map(ppmi_distances(frame, groupings))
    return table
