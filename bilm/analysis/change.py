"""How much the usages of a word differ between two groupings, such as periods.

Every measure is a function of the means of some features over the usages of each grouping:

    apd          average pairwise distance: mean cosine distance between a usage of one grouping and
                 a usage of the other. Features: vectors of length 1, so that it is
                 1 - mean(a) . mean(b). Giulianelli et al. 2020, arXiv:2004.14118
    prt          distance of prototypes: cosine distance between the mean vectors. Kutuzov and
                 Giulianelli 2020, arXiv:2005.00050, who report the inverse of the similarity, which
                 ranks words equally
    jsd_kmeans   Jensen-Shannon divergence in bits between the shares of clusters of all usages;
                 Giulianelli et al. 2020

Intervals are percentile bootstrap intervals (usages are drawn with replacement within each
grouping), shifted by the bootstrap's estimate of the bias: resampled usages differ more than the
usages themselves, so that `prt` and the divergences are too large. Bounds outside the range of the
measure are moved to its ends. Clusters are computed once, not for each resample. p-values are
results of a permutation test: the share of random assignments of usages to the groupings with a
measure at least as large. A small p-value means that the two samples differ in distribution, for
example in topic or genre; it does not show that the meaning has changed.

The baseline `ppmi` needs no biLM: the cosine distance of a word's rows of positive pointwise mutual
information with context words, after Hamilton et al. 2016, arXiv:1605.09096.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.analysis.maps import N_CLUSTERS, cluster
from bilm.analysis.usages import Usages, UsagesFile, normalized
from bilm.errors import DataError, OptionsError
from bilm.support.imports import optional
from bilm.support.progress import progress

if TYPE_CHECKING:
    import pandas

Combine = Callable[[np.ndarray, np.ndarray], np.ndarray]

DEFAULT = ("prt", "apd", "jsd_kmeans")
LARGEST = {"apd": 2.0, "prt": 2.0, "jsd_kmeans": 1.0}
MEASURES = tuple(LARGEST)
PROPER = "PROPN"  # the tag of proper nouns in Universal Dependencies
MIN_USAGES = 2  # per grouping
CONFIDENCE = 0.95  # level of intervals
BATCH_NUMBERS = 1 << 24  # weights of resampled usages that are computed at a time
# Of the baseline: words to each side, least number of occurrences of a context word, and exponent
# of the frequencies of context words (Levy et al. 2015).
WINDOW, MIN_COUNT, SMOOTHING = 5, 5, 0.75


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
    rel_entr = optional("scipy.special", "analysis", "divergences").rel_entr
    middle = (a + b) / 2
    divergence = rel_entr(a, middle).sum(axis=-1) + rel_entr(b, middle).sum(axis=-1)
    return np.clip(divergence / (2 * np.log(2)), 0, 1)


@dataclass(frozen=True)
class Settings:
    """How change is measured.

    Fields:
        measures: names from `MEASURES`.
        layers: numbers of the layers; None for all that the table contains, except layer 0.
        between: the names of two groupings; None for the only two.
        n_resamples: number of resamples of the interval and the test; 0 for neither.
        n_clusters: number of clusters of k-means.
        tags: parts of speech to keep; None for all.
        proper_names: whether proper names are kept. They have the tag PROPN; in text without tags,
            they are capitalized words that do not start a sentence.
        seed: seed of clusters and resamples.
    """

    measures: tuple[str, ...] = DEFAULT
    layers: tuple[int, ...] | None = None
    between: tuple[str, str] | None = None
    n_resamples: int = 1000
    n_clusters: int = N_CLUSTERS
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
        settings: resamples and clusters.
    Raises: OptionsError for an unknown measure, or if the layer is not stored; DataError for
        vectors that are not finite.
    """
    settings = settings or Settings()
    if name not in MEASURES:
        raise OptionsError(f"the measure is {name!r}, expected one of {', '.join(MEASURES)}")
    first, second = np.flatnonzero(is_first), np.flatnonzero(~is_first)
    if min(len(first), len(second)) < MIN_USAGES:
        return Measured(float("nan"))
    features, combine = _features(name, usages.vectors(layer), settings)
    value = float(combine(features[first].mean(axis=0), features[second].mean(axis=0)))
    if not settings.n_resamples:
        return Measured(value)
    stats = optional("scipy.stats", "analysis", "intervals and tests")

    def statistic(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
        return combine(_means(a, features), _means(b, features))

    def resampling() -> dict[str, Any]:
        batch = max(1, BATCH_NUMBERS // len(features))
        random = np.random.default_rng(settings.seed)
        return {"n_resamples": settings.n_resamples, "batch": batch, "rng": random, "axis": -1}

    test = stats.permutation_test(
        (first, second), statistic, alternative="greater", vectorized=True, **resampling()
    )
    bootstrap = stats.bootstrap(
        (first, second), statistic, method="percentile", confidence_level=CONFIDENCE,
        vectorized=True, **resampling(),
    )  # fmt: skip
    bias = float(bootstrap.bootstrap_distribution.mean()) - value
    low, high = np.clip(np.array(bootstrap.confidence_interval) - bias, 0.0, LARGEST[name])
    return Measured(value, float(low), float(high), float(test.pvalue))


def _features(name: str, vectors: np.ndarray, settings: Settings) -> tuple[np.ndarray, Combine]:
    """Return the features (N, F) of a measure, and the function of their means."""
    if name == "apd":
        return normalized(vectors), _average_pairwise_distance
    if name == "prt":
        return vectors, _prototype_distance
    labels = cluster(vectors, settings.n_clusters, settings.seed)
    return np.eye(labels.max() + 1)[labels], _jensen_shannon


def _means(rows: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return the mean features of resampled usages: row numbers (..., n) -> float (..., F)."""
    *outer, n = rows.shape
    flat: np.ndarray = rows.reshape(-1, n).astype(np.int64)
    n_all = len(features)
    places = flat + n_all * np.arange(len(flat))[:, None]
    counts = np.bincount(places.ravel(), minlength=n_all * len(flat)).reshape(len(flat), n_all)
    return (counts.astype(features.dtype) @ features / n).reshape(*outer, -1)


class Contexts:
    """Counts of the words near usages in one grouping, and of all words in their sentences."""

    def __init__(self) -> None:
        self._near: dict[str, Counter[str]] = {}
        self.words: Counter[str] = Counter()
        self._read: set[tuple[str, int]] = set()  # file and line of the counted sentences

    def add(self, word: str, frame: pandas.DataFrame) -> None:
        """Count the usages of a word."""
        near = self._near[word] = Counter()
        columns = (frame[name] for name in ("text", "line", "sentence", "position"))
        for text, line, sentence, place in zip(*columns, strict=True):
            words = sentence.split(" ")
            near.update(words[max(0, place - WINDOW) : place])
            near.update(words[place + 1 : place + 1 + WINDOW])
            if (text, line) not in self._read:
                self._read.add((text, line))
                self.words.update(words)

    def ppmi(self, word: str, contexts: Sequence[str]) -> np.ndarray:
        """Return max(0, log p(c | word) / p(c)) for each context word c, float (C,)."""
        counts = np.array([self._near[word][c] for c in contexts], float)
        shares = np.array([self.words[c] for c in contexts], float) ** SMOOTHING
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(counts / counts.sum()) - np.log(shares / shares.sum())
        return np.maximum(logs, 0)  # nan without a context word


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
        The last column is `ppmi`, equal in all layers.
    Raises: OptionsError for groupings, layers or measures that do not exist.
    """
    settings = settings or Settings()
    pandas = optional("pandas", "analysis", "tables of usages")
    first, second = groupings = _between(usages, settings)
    layers = settings.layers or [k for k in usages.layers if k] or usages.layers
    rows: list[dict[str, Any]] = []
    forms: set[str] = set()
    near = {name: Contexts() for name in groupings}
    with progress("measuring change", "words", len(usages.words)) as shown:
        for word, own in shown.over(usages.by_word(layers)):
            own = compared(own, settings, groupings)
            is_first = (own.frame["grouping"] == first).to_numpy()
            sizes = {f"usages_{first}": is_first.sum(), f"usages_{second}": (~is_first).sum()}
            sizes |= _frequencies(word, own, groupings)
            forms.update(own.frame["form"])
            for name in groupings:
                near[name].add(word, own.frame[own.frame["grouping"] == name])
            for layer in layers:
                row = {"word": word, "layer": layer, **sizes}
                for name in settings.measures:
                    value, low, high, p = measure(name, own, is_first, layer, settings)
                    row |= {name: value, f"{name}_low": low, f"{name}_high": high}
                    row |= {f"{name}_p": p, f"{name}_q": float("nan")}
                rows.append(row)
    if not rows:
        raise DataError("the table contains no usages; write it with words that occur in the texts")
    frame = pandas.DataFrame(rows)
    adjusted = optional("scipy.stats", "analysis", "tests").false_discovery_control
    for name in settings.measures:
        for own in frame.dropna(subset=f"{name}_p").groupby("layer").groups.values():
            frame.loc[own, f"{name}_q"] = adjusted(frame.loc[own, f"{name}_p"])
    a, b = (near[name] for name in groupings)
    common = [c for c, n in a.words.items() if min(n, b.words[c]) >= MIN_COUNT and c not in forms]
    distances = {
        word: float(_prototype_distance(a.ppmi(word, common), b.ppmi(word, common)))
        for word in frame["word"].unique()
    }
    frame["ppmi"] = frame["word"].map(distances)
    return frame


def _between(usages: UsagesFile | Usages, settings: Settings) -> tuple[str, str]:
    """Return the names of the two compared groupings."""
    names = [grouping.name for grouping in usages.description.groupings]
    chosen = settings.between or tuple(names)
    if len(chosen) != 2 or len(set(chosen) & set(names)) != 2:
        raise OptionsError(
            f"the groupings of the table are {', '.join(names)}, and {', '.join(chosen)} are "
            "selected; expected two different ones, such as --between then,now"
        )
    return chosen[0], chosen[1]


def compared(usages: Usages, settings: Settings, groupings: Collection[str]) -> Usages:
    """Return the usages in some groupings that the settings keep."""
    frame = usages.frame
    kept = frame["grouping"].isin(groupings)
    if settings.tags is not None:
        if len(frame) and frame["tag"].isna().all():
            raise DataError("the table of usages contains no parts of speech; omit --tags")
        kept &= frame["tag"].isin(settings.tags)
    if not settings.proper_names:
        capital = frame["form"].str[:1].str.isupper() & (frame["position"] > 0)
        kept &= ~(frame["tag"] == PROPER).where(frame["tag"].notna(), capital).astype(bool)
    return usages.where(kept)


def _frequencies(word: str, usages: Usages, groupings: Sequence[str]) -> dict[str, Any]:
    """Return the columns of counts and frequencies of a word."""
    counts = {name: usages.description.counts[word].get(name, 0) for name in groupings}
    tokens = {name: usages.tokens[name] for name in groupings}
    shares = [(counts[name] + 0.5) / (tokens[name] + 1) for name in groupings]
    return {
        **{f"count_{name}": n for name, n in counts.items()},
        **{f"per_million_{name}": 1e6 * n / max(1, tokens[name]) for name, n in counts.items()},
        "log_ratio": float(np.log2(shares[1] / shares[0])),
    }
