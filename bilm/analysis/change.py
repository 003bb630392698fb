"""How much words change between two groupings of usages, such as periods: see `measures`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.analysis.measures import LARGEST, MEASURES, Resampling, ppmi_distances
from bilm.analysis.usages import Usages
from bilm.analysis.usages_file import UsagesFile
from bilm.errors import DataError, OptionsError
from bilm.support.imports import optional
from bilm.support.progress import Progress

if TYPE_CHECKING:
    import pandas

PROPER = "PROPN"  # the tag of proper nouns in Universal Dependencies
MIN_USAGES = 2  # per grouping
FEW = 20  # usages per grouping, below which a value is mostly chance
N_SPLITS = 200  # random splits, if nothing is resampled
CONFIDENCE = 0.95  # level of intervals
EPSILON = 1e-12  # difference of sums in another order


@dataclass(frozen=True)
class Settings:
    """How change is measured."""

    measures: tuple[str, ...] = tuple(MEASURES)
    layers: tuple[int, ...] | None = None  # None for the mean of the LSTM layers of the table
    between: tuple[str, str] | None = None  # names of two groupings; None for the only two
    n_resamples: int = 1000  # for the interval, and random splits for the test; 0 for neither
    tags: frozenset[str] | None = None  # parts of speech to keep; None for all
    # Whether proper names are kept: words with the tag PROPN; in text without tags, capitalized
    # words that do not start a sentence
    proper_names: bool = True
    seed: int = 0  # of the resamples


DEFAULTS = Settings()


class Measured(NamedTuple):
    """A measure of one word; `low`, `high` and `p` are nan if nothing was resampled."""

    value: float
    low: float = math.nan  # bounds of the interval
    high: float = math.nan
    p: float = math.nan  # p-value
    same: float = math.nan  # value expected without change


def measure(
    name: str,
    usages: Usages,
    is_first: np.ndarray,
    layer: int | None = None,
    settings: Settings = DEFAULTS,
) -> Measured:
    """Measure the change of one word between two groupings.

    Args:
        name: one of `MEASURES`.
        usages: the usages of the word in both groupings.
        is_first: which of them belong to the first grouping, boolean (N,).
        layer: number of the layer; None for the mean of the LSTM layers.
    Returns: nan if a grouping has fewer than two usages.
    Raises: OptionsError if the layer is not stored; DataError for vectors that are not finite.
    """
    if min(is_first.sum(), (~is_first).sum()) < MIN_USAGES:
        return Measured(math.nan)
    layers = _lstm_layers(usages) if layer is None else [layer]
    vectors = np.mean([usages.vectors(number) for number in layers], axis=0, dtype=float)  # N, D
    resampling = Resampling(MEASURES[name], vectors, is_first, settings.seed)
    value = resampling.value()

    # Random splits show which value to expect without change.
    splits = resampling.splits(settings.n_resamples or N_SPLITS)
    expected = float(splits.mean())
    subtracted = expected if MEASURES[name].is_corrected else 0.0
    result = Measured(value - subtracted, same=expected - subtracted)
    if not settings.n_resamples:
        return result

    # The groupings themselves count as one of the splits, so that the p-value is never 0.
    n_as_large = (splits >= value - EPSILON).sum()
    p = (1 + n_as_large) / (1 + len(splits))

    # The bootstrap interval, shifted by the estimate of the bias
    draws = resampling.bootstrap(settings.n_resamples)
    bias = draws.mean() - value
    tails = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
    bounds = np.clip(np.quantile(draws, tails) - bias, 0, LARGEST)
    low, high = (bounds - subtracted).tolist()
    return result._replace(low=low, high=high, p=float(p))


def _lstm_layers(usages: UsagesFile | Usages) -> list[int]:
    """Return the numbers of the stored LSTM layers; layer 0 if no other is stored."""
    return [number for number in usages.layers if number] or [0]


def measure_change(usages: UsagesFile | Usages, settings: Settings = DEFAULTS) -> pandas.DataFrame:
    """Measure the change of every word of a table between two groupings.

    Args:
        usages: an open table, whose words are read one by one, or usages in memory.
    Returns: a data frame with a row per word and layer. Columns: word; layer, a number or "mean";
        cite: "yes", or why not to report the row, such as "fewer than 20 usages"; usages_A,
        usages_B, the numbers of compared usages in the groupings A and B; count_A, count_B, the
        numbers of usages in the texts; per_million_A, per_million_B; log_ratio, the binary
        logarithm of the ratio of the relative frequencies (B over A, with 0.5 added to the counts);
        ppmi, equal in all layers; and for each measure m: m, m_low, m_high, m_p, and m_q, the
        p-value adjusted over the words of a layer (Benjamini and Hochberg 1995). apd_same is the
        mean of `apd` over random splits. A word with fewer than two usages in a grouping has nan.
    Raises: OptionsError for groupings or layers that do not exist.
    """
    pandas = optional("pandas", "analysis", "tables of usages")
    names = [grouping.name for grouping in usages.description.groupings]
    groupings = settings.between or names
    if len(groupings) != 2 or len(set(groupings) & set(names)) != 2:
        raise OptionsError(
            f"the groupings of the table are {', '.join(names)}, and {', '.join(groupings)} are "
            "selected; expected two different ones, such as --between then,now"
        )
    stored = settings.layers or _lstm_layers(usages)
    measured: Sequence[int | None] = stored
    if not settings.layers and len(stored) > 1:
        measured = [None]  # the mean of the layers

    # A row for each word and layer
    rows = []
    frames = []
    bar = Progress("measuring change", "words", len(usages.words))
    for word, of_word in bar.over(usages.by_word(stored)):
        kept = _compared(of_word, settings, groupings)
        rows += [_row(word, kept, layer, groupings, settings) for layer in measured]
        frames.append(kept.frame)
    if not rows:
        raise DataError("the table contains no usages; write it with words that occur in the texts")

    # Columns that depend on all rows
    table = pandas.DataFrame(rows)
    table["ppmi"] = table["word"].map(ppmi_distances(pandas.concat(frames), groupings))
    if len(measured) > 1:
        table["cite"] = table["cite"].replace("yes", "one of several layers")
    adjusted = optional("scipy.stats", "analysis", "tests").false_discovery_control
    for name in settings.measures:
        tested = table.dropna(subset=f"{name}_p")
        for numbers in tested.groupby("layer").groups.values():
            table.loc[numbers, f"{name}_q"] = adjusted(table.loc[numbers, f"{name}_p"])
    return table


def _compared(usages: Usages, settings: Settings, groupings: Sequence[str]) -> Usages:
    """Return the usages in some groupings that the settings keep."""
    frame = usages.frame
    kept = frame["grouping"].isin(groupings)
    if settings.tags is not None:
        if frame["tag"].isna().all():
            raise DataError("the table of usages contains no parts of speech; omit --tags")
        kept &= frame["tag"].isin(settings.tags)
    if not settings.proper_names:
        is_tagged = frame["tag"].notna()
        is_capitalized = frame["form"].str[:1].str.isupper() & (frame["position"] > 0)
        is_proper = (frame["tag"] == PROPER).where(is_tagged, is_capitalized)
        kept &= ~is_proper.astype(bool)
    return usages.where(kept)


def _row(
    word: str, usages: Usages, layer: int | None, groupings: Sequence[str], settings: Settings
) -> dict[str, object]:
    """Return the row of a word and a layer; None is the mean of the layers."""
    is_first = (usages.frame["grouping"] == groupings[0]).to_numpy()
    n_compared = np.array([is_first.sum(), (~is_first).sum()])
    row: dict[str, object] = {
        "word": word,
        "layer": "mean" if layer is None else layer,
        "cite": "yes" if n_compared.min() >= FEW else f"fewer than {FEW} usages",
    }

    # The frequencies in both groupings
    by_grouping = usages.description.counts[word]
    counts = np.array([by_grouping.get(name, 0) for name in groupings])
    n_tokens = np.array([usages.tokens[name] for name in groupings])
    per_million = 1e6 * counts / np.maximum(1, n_tokens)
    columns = {"usages": n_compared, "count": counts, "per_million": per_million}
    for name, values in columns.items():
        for grouping, value in zip(groupings, values, strict=True):
            row[f"{name}_{grouping}"] = value
    smoothed = (counts + 0.5) / (n_tokens + 1)
    row["log_ratio"] = np.log2(smoothed[1] / smoothed[0])

    # The measures
    row["ppmi"] = math.nan  # see `measure_change`
    for name in settings.measures:
        result = measure(name, usages, is_first, layer, settings)
        row[name] = result.value
        if not MEASURES[name].is_corrected:  # otherwise it is 0
            row[f"{name}_same"] = result.same
        row[f"{name}_low"] = result.low
        row[f"{name}_high"] = result.high
        row[f"{name}_p"] = result.p
        row[f"{name}_q"] = math.nan  # see `measure_change`
    return row
