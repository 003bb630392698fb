"""How much the usages of a word differ between two groupings, such as periods.

Every measure is a function of the means of some features over the usages of each grouping:

    apd               average pairwise distance: mean cosine distance between a usage of one
                      grouping and a usage of the other. Features: vectors of length 1, so that it
                      is 1 - mean(a) . mean(b). Giulianelli et al. 2020, arXiv:2004.14118
    prt               distance of prototypes: cosine distance between the mean vectors. Kutuzov and
                      Giulianelli 2020, arXiv:2005.00050, who report the inverse of the similarity,
                      which ranks words equally
    jsd_kmeans        Jensen-Shannon divergence in bits between the shares of clusters of all
                      usages; Giulianelli et al. 2020

Intervals are percentile bootstrap intervals (usages are drawn with replacement within each
grouping), shifted by the bootstrap's estimate of the bias: resampled usages differ more than the
usages themselves, so that `prt` and the divergences are too large. Bounds outside the range of the
measure are moved to its ends. Clusters are computed once, not for each resample. p-values are
results of a permutation test: the share of random assignments of usages to the groupings with a
measure at least as large. A small p-value means that the two samples differ in distribution, for
example in topic or genre; it does not show that the meaning has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.analysis.clusters import N_CLUSTERS, cluster
from bilm.analysis.usages import Usages, UsagesFile, normalized
from bilm.errors import DataError, OptionsError
from bilm.support.imports import optional
from bilm.support.progress import progress

if TYPE_CHECKING:
    import pandas

MEASURES = ("apd", "prt", "jsd_kmeans")
DEFAULT = ("prt", "apd", "jsd_kmeans")
PROPER = "PROPN"  # the tag of proper nouns in Universal Dependencies
LARGEST = {"apd": 2.0, "prt": 2.0, "jsd_kmeans": 1.0}
MIN_USAGES = 2  # per grouping
BATCH_NUMBERS = 1 << 24  # weights of resampled usages that are computed at a time

Combine = Callable[[np.ndarray, np.ndarray], np.ndarray]


# --- measures ---


def _average_pairwise_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return 1 - (a * b).sum(axis=-1)


def _prototype_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return 1 - (a * b).sum(axis=-1) / np.where(norms > 0, norms, 1)


def _jensen_shannon(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Jensen-Shannon divergence in bits of distributions in the last axis.

    `scipy.spatial.distance.jensenshannon` returns nan for some almost equal distributions, whose
    divergence is rounded below 0 (SciPy issue 20083).
    """
    special = optional("scipy.special", "analysis", "divergences")
    middle = (a + b) / 2
    divergence = special.rel_entr(a, middle).sum(axis=-1) + special.rel_entr(b, middle).sum(axis=-1)
    return np.clip(divergence / (2 * np.log(2)), 0, 1)


@dataclass(frozen=True)
class Settings:
    """How change is measured.

    Fields:
        measures: names from `MEASURES`.
        layers: numbers of the layers; None for all that the table contains, except layer 0.
        between: the names of two groupings; None for the only two.
        n_resamples: number of resamples of the interval and the test; 0 for neither.
        confidence: level of the interval.
        n_clusters: number of clusters of k-means.
        subtract_word: subtract the vector of layer 0, which does not depend on the context.
        tags: parts of speech to keep; None for all.
        proper_names: whether proper names are kept. They have the tag PROPN; in text without tags,
            they are capitalized words that do not start a sentence.
        seed: seed of clusters and resamples.
    """

    measures: tuple[str, ...] = DEFAULT
    layers: tuple[int, ...] | None = None
    between: tuple[str, str] | None = None
    n_resamples: int = 1000
    confidence: float = 0.95
    n_clusters: int = N_CLUSTERS
    subtract_word: bool = False
    tags: frozenset[str] | None = None
    proper_names: bool = True
    seed: int = 0


class Measured(NamedTuple):
    """A measure of one word.

    Fields: `value`; `low`, `high`, the bounds of the interval; `p`, the p-value. The last three
    are nan if nothing was resampled.
    """

    value: float
    low: float = float("nan")
    high: float = float("nan")
    p: float = float("nan")


def measure(
    name: str,
    usages: Usages,
    is_first: np.ndarray,
    layer: int | None = None,
    settings: Settings | None = None,
) -> Measured:
    """Measure the change of one word between two groupings.

    Args:
        name: one of `MEASURES`, see the module.
        usages: the usages of the word in both groupings.
        is_first: which of them belong to the first grouping, boolean (N,).
        layer: number of the layer; None for the highest.
        settings: resamples, clusters and subtraction.
    Raises: OptionsError for an unknown measure, or if the layer is not stored.
    """
    settings = settings or Settings()
    first, second = np.flatnonzero(is_first), np.flatnonzero(~is_first)
    if min(len(first), len(second)) < MIN_USAGES:
        _check_measure(name)
        return Measured(float("nan"))
    features, combine = _features(name, usages, layer, settings)
    value = float(combine(features[first].mean(axis=0), features[second].mean(axis=0)))
    if not settings.n_resamples:
        return Measured(value)
    stats = optional("scipy.stats", "analysis", "intervals and tests")

    def statistic(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
        return combine(_means(a, features), _means(b, features))

    resampling = {
        "n_resamples": settings.n_resamples, "vectorized": True, "axis": -1,
        "batch": max(1, BATCH_NUMBERS // len(features)),
    }  # fmt: skip
    test = stats.permutation_test(
        (first, second), statistic, alternative="greater",
        rng=np.random.default_rng(settings.seed), **resampling,
    )  # fmt: skip
    found = stats.bootstrap(
        (first, second), statistic, method="percentile", confidence_level=settings.confidence,
        rng=np.random.default_rng(settings.seed), **resampling,
    )  # fmt: skip
    low, high = found.confidence_interval
    bias = float(found.bootstrap_distribution.mean()) - value
    low, high = (min(max(0.0, float(bound) - bias), LARGEST[name]) for bound in (low, high))
    return Measured(value, low, high, float(test.pvalue))


def _means(rows: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return the mean features of resampled usages: row numbers (..., n) -> float (..., F)."""
    *outer, n = rows.shape
    flat: np.ndarray = rows.reshape(-1, n).astype(np.int64)
    n_all = len(features)
    places = flat + n_all * np.arange(len(flat))[:, None]
    counts = np.bincount(places.ravel(), minlength=n_all * len(flat)).reshape(len(flat), n_all)
    return (counts.astype(features.dtype) @ features / n).reshape(*outer, -1)


def _check_measure(name: str) -> None:
    if name not in MEASURES:
        raise OptionsError(f"the measure is {name!r}, expected one of {', '.join(MEASURES)}")


def _features(
    name: str,
    usages: Usages,
    layer: int | None,
    settings: Settings,
) -> tuple[np.ndarray, Combine]:
    """Return the features (N, F) of a measure, and the function of their means."""
    _check_measure(name)
    if not usages.layers:
        raise OptionsError("the table of usages contains no vectors")
    number = usages.layers[-1] if layer is None else layer
    vectors = usages.vectors(number)
    if settings.subtract_word and number > 0:
        vectors = vectors - usages.vectors(0)
    if name == "apd":
        return normalized(vectors), _average_pairwise_distance
    if name == "prt":
        return vectors, _prototype_distance
    labels = cluster(vectors, settings.n_clusters, settings.seed)
    return np.eye(labels.max() + 1)[labels], _jensen_shannon


# --- all words of a table ---


def measure_change(
    usages: UsagesFile | Usages, settings: Settings | None = None
) -> pandas.DataFrame:
    """Measure the change of every word of a table between two groupings.

    Args:
        usages: an open table, whose words are read one by one, or usages in memory.
        settings: how to measure.
    Returns: a data frame with a row per word and layer. Columns: word; layer; usages_A, usages_B,
        the numbers of compared usages in the groupings A and B; count_A, count_B, the numbers of
        usages in the texts; per_million_A, per_million_B; log_ratio, the binary logarithm of the
        ratio of the relative frequencies (B over A, with 0.5 added to the counts); and for each
        measure m: m, m_low, m_high, m_p, and m_q, the p-value adjusted over the words of a layer
        (Benjamini and Hochberg 1995). A word with fewer than two usages in a grouping has nan.
    Raises: OptionsError for groupings, layers or measures that do not exist.
    """
    settings = settings or Settings()
    for name in settings.measures:
        _check_measure(name)
    pandas = optional("pandas", "analysis", "tables of usages")
    first, second = _between(usages, settings.between)
    layers = settings.layers
    if layers is None:
        layers = tuple(k for k in usages.layers if k) or tuple(usages.layers)
    needed = {0, *layers} if settings.subtract_word else set(layers)
    words = usages.words if isinstance(usages, UsagesFile) else list(dict.fromkeys(_words(usages)))
    if not words:
        raise DataError("the table contains no usages; write it with words that occur in the texts")
    rows: list[dict[str, Any]] = []
    with progress("measuring change", "words", len(words)) as shown:
        for word in shown.over(words):
            own = (
                usages.read(word, sorted(needed))
                if isinstance(usages, UsagesFile)
                else usages.of(word)
            )
            rows += _rows_of(word, own, first, second, layers, settings)
    frame = pandas.DataFrame(rows)
    for name in settings.measures:
        frame[f"{name}_q"] = _adjusted(frame, f"{name}_p")
    ends = [f"{m}{end}" for m in settings.measures for end in ("", "_low", "_high", "_p", "_q")]
    return frame[[c for c in frame.columns if c not in ends] + ends]


def _words(usages: Usages) -> list[str]:
    return usages.frame["word"].tolist()


def _between(usages: UsagesFile | Usages, between: tuple[str, str] | None) -> tuple[str, str]:
    names = [grouping.name for grouping in usages.description.groupings]
    if len(names) < 2:
        raise OptionsError(
            f"the table has only the grouping {', '.join(names)}, but two are compared; give bilm "
            "usages one --input per text"
        )
    if between is None:
        if len(names) > 2:
            raise OptionsError(
                f"the table has {len(names)} groupings ({', '.join(names)}); select two, such as "
                f"--between {','.join(names[:2])}"
            )
        return names[0], names[1]
    missing = [name for name in between if name not in names]
    if missing or between[0] == between[1]:
        raise OptionsError(
            f"the groupings are {', '.join(names)}; expected two of them, not {', '.join(between)}"
        )
    return between


def _rows_of(
    word: str,
    usages: Usages,
    first: str,
    second: str,
    layers: Sequence[int],
    settings: Settings,
) -> Iterable[dict[str, Any]]:
    frame = usages.frame
    usages = usages.where(frame["grouping"].isin([first, second]) & _kept(frame, settings))
    is_first = (usages.frame["grouping"] == first).to_numpy()
    frequencies = _frequencies(word, usages, first, second)
    sizes = {f"usages_{first}": int(is_first.sum()), f"usages_{second}": int((~is_first).sum())}
    for layer in layers:
        row: dict[str, Any] = {"word": word, "layer": layer, **sizes, **frequencies}
        for name in settings.measures:
            found = measure(name, usages, is_first, layer, settings)
            row |= {
                name: found.value, f"{name}_low": found.low, f"{name}_high": found.high,
                f"{name}_p": found.p,
            }  # fmt: skip
        yield row


def _kept(frame: pandas.DataFrame, settings: Settings) -> np.ndarray:
    """Return which usages the settings keep, boolean (N,)."""
    kept: np.ndarray = np.ones(len(frame), bool)
    if settings.tags is not None:
        if len(frame) and frame["tag"].isna().all():
            raise DataError("the table of usages contains no parts of speech; omit --tags")
        kept &= frame["tag"].isin(settings.tags).to_numpy()
    if not settings.proper_names:
        capital = frame["form"].str[:1].str.isupper() & (frame["position"] > 0)
        proper = (frame["tag"] == PROPER).where(frame["tag"].notna(), capital)
        kept &= ~proper.to_numpy(bool)
    return kept


def _frequencies(word: str, usages: Usages, first: str, second: str) -> dict[str, Any]:
    counts = usages.description.counts.get(word, {})
    tokens = {grouping.name: grouping.tokens for grouping in usages.description.groupings}
    found: dict[str, Any] = {}
    for name in (first, second):
        found[f"count_{name}"] = counts.get(name, 0)
    for name in (first, second):
        found[f"per_million_{name}"] = 1e6 * counts.get(name, 0) / max(1, tokens[name])
    shares = [(counts.get(name, 0) + 0.5) / (tokens[name] + 1) for name in (first, second)]
    found["log_ratio"] = float(np.log2(shares[1] / shares[0]))
    return found


def _adjusted(frame: pandas.DataFrame, column: str) -> np.ndarray:
    """Return p-values adjusted by Benjamini and Hochberg's method within each layer."""
    stats = optional("scipy.stats", "analysis", "intervals and tests")
    adjusted = np.full(len(frame), np.nan)
    for rows in frame.groupby("layer").indices.values():
        values = frame[column].to_numpy()[rows]
        known = ~np.isnan(values)
        if known.any():
            adjusted[rows[known]] = stats.false_discovery_control(values[known])
    return adjusted


# --- gold scores ---


class Correlation(NamedTuple):
    """Spearman's rank correlation of a measure with gold scores.

    Fields: `measure`; `layer`, None for measures without; `rho`; `low`, `high`, the bounds of a
    bootstrap interval over words; `p`; `n_words`.
    """

    measure: str
    layer: int | None
    rho: float
    low: float
    high: float
    p: float
    n_words: int


def correlations(
    frame: pandas.DataFrame,
    gold: Mapping[str, float],
    names: Sequence[str],
    n_resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[Correlation]:
    """Correlate measures with gold scores.

    Args:
        frame: result of `measure_change`, perhaps with further columns.
        gold: score by word.
        names: columns to correlate.
        n_resamples, confidence, seed: of the bootstrap interval over words.
    Raises: DataError if fewer than three words have a gold score.
    """
    stats = optional("scipy.stats", "analysis", "correlations")
    common = [word for word in dict.fromkeys(frame["word"]) if word in gold]
    if len(common) < 3:
        raise DataError(
            f"{len(common)} words of the table have a gold score, expected at least 3; the table "
            f"contains {', '.join(list(dict.fromkeys(frame['word']))[:5])}, the gold scores "
            f"{', '.join(list(gold)[:5])}"
        )
    found = []
    for layer, rows in frame[frame["word"].isin(common)].groupby("layer"):
        for name in names:
            if name not in MEASURES and layer != frame["layer"].iloc[0]:
                continue  # equal in all layers
            own = rows[["word", name]].dropna()
            x = own[name].to_numpy(float)
            y = np.array([gold[word] for word in own["word"]])
            if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
                continue
            test = stats.spearmanr(x, y)
            interval = stats.bootstrap(
                (x, y), lambda a, b, axis: _rank_correlation(stats, a, b), paired=True,
                method="percentile", n_resamples=n_resamples, confidence_level=confidence,
                vectorized=True, axis=-1, rng=np.random.default_rng(seed),
            ).confidence_interval  # fmt: skip
            found.append(
                Correlation(
                    name, int(layer) if name in MEASURES else None, float(test.statistic),
                    float(interval.low), float(interval.high), float(test.pvalue), len(x),
                )
            )  # fmt: skip
    return found


def _rank_correlation(stats: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Spearman's correlation along the last axis; 0 for constant values."""
    a, b = (stats.rankdata(x, axis=-1) for x in (a, b))
    a, b = (x - x.mean(axis=-1, keepdims=True) for x in (a, b))
    norms = np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))
    return (a * b).sum(axis=-1) / np.where(norms > 0, norms, 1)
