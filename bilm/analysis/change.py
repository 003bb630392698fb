"""How much the usages of a word differ between two groupings, such as periods.

Every measure is a function of the means of some features over the usages of each grouping:

    apd          average pairwise distance: mean cosine distance between a usage of one grouping and
                 a usage of the other. Features: vectors of length 1, so that it is
                 1 - mean(a) . mean(b). Giulianelli et al. 2020, arXiv:2004.14118
    prt          distance of prototypes: cosine distance between the mean vectors. Kutuzov and
                 Giulianelli 2020, arXiv:2005.00050, who report the inverse of the similarity, which
                 ranks words equally

The fewer the usages, the larger is `prt` of a word that did not change, because few usages estimate
means badly. Therefore, its mean over random splits of the word's usages into groupings of the same
sizes is subtracted: the expected value is 0 without change. The expected value of `apd` does not
depend on the number of usages, because each pair has a usage of each grouping. It is not 0 without
change, but the mean over random splits, `apd_same`.

Intervals are percentile bootstrap intervals (usages are drawn with replacement within each
grouping), shifted by the bootstrap's estimate of the bias. p-values are results of a permutation
test: the share of the random splits with a measure at least as large. A small p-value means that
the two samples differ in distribution, for example in topic or genre; it does not show that the
meaning has changed.

The baseline `ppmi` needs no biLM: the cosine distance of a word's rows of positive pointwise mutual
information with context words, after Hamilton et al. 2016, arXiv:1605.09096.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.analysis.usages import Usages, UsagesFile, normalized, words_near
from bilm.errors import DataError, OptionsError
from bilm.support.imports import optional
from bilm.support.progress import progress

if TYPE_CHECKING:
    import pandas

Combine = Callable[[np.ndarray, np.ndarray], np.ndarray]

MEASURES = ("apd", "prt")
LARGEST = 2.0  # value of a measure
CORRECTED = ("prt",)  # less its mean over random splits of the usages
MEAN = "mean"  # in the column `layer`: the vectors are means over the LSTM layers
PROPER = "PROPN"  # the tag of proper nouns in Universal Dependencies
MIN_USAGES = 2  # per grouping
FEW = 20  # usages per grouping, below which a value is mostly chance
N_SPLITS = 200  # for the correction alone
CONFIDENCE = 0.95  # level of intervals
EPSILON = 1e-12  # difference of sums in another order
BATCH_NUMBERS = 1 << 24  # weights of resampled usages that are computed at a time
# Of the baseline: least number of occurrences of a context word, and exponent of the frequencies of
# context words (Levy et al. 2015).
MIN_COUNT, SMOOTHING = 5, 0.75


# --- measures ---


def _average_pairwise_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return 1 - (a * b).sum(axis=-1)


def _prototype_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return 1 - (a * b).sum(axis=-1) / np.where(norms > 0, norms, 1)


@dataclass(frozen=True)
class Settings:
    """How change is measured.

    Fields:
        measures: names from `MEASURES`.
        layers: numbers of the layers; None for the mean of the LSTM layers of the table.
        between: the names of two groupings; None for the only two.
        n_resamples: number of resamples of the interval and of random splits of the test; 0 for
            neither.
        tags: parts of speech to keep; None for all.
        proper_names: whether proper names are kept. They have the tag PROPN; in text without tags,
            they are capitalized words that do not start a sentence.
        seed: seed of the resamples.
    """

    measures: tuple[str, ...] = MEASURES
    layers: tuple[int, ...] | None = None
    between: tuple[str, str] | None = None
    n_resamples: int = 1000
    tags: frozenset[str] | None = None
    proper_names: bool = True
    seed: int = 0


class Measured(NamedTuple):
    """A measure of one word.

    Fields: `value`; `low`, `high`, the bounds of the interval; `p`, the p-value; `same`, the value
    expected without change. `low`, `high` and `p` are nan if nothing was resampled.
    """

    value: float
    low: float = float("nan")
    high: float = float("nan")
    p: float = float("nan")
    same: float = float("nan")


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
        layer: number of the layer; None for the mean of the LSTM layers.
        settings: the resamples.
    Raises: OptionsError if the layer is not stored; DataError for vectors that are not finite.
    """
    settings = settings or Settings()
    if min(is_first.sum(), (~is_first).sum()) < MIN_USAGES:
        return Measured(float("nan"))
    layers = _lstm_layers(usages) if layer is None else [layer]
    vectors = np.mean([usages.vectors(k) for k in layers], axis=0, dtype=float)
    features, combine = _features(name, vectors)
    random = np.random.default_rng(settings.seed)
    batch = max(1, BATCH_NUMBERS // len(features))

    def statistic(*counts: np.ndarray) -> np.ndarray:  # of the usages, (..., N) per grouping
        return combine(*(n @ features / n.sum(axis=-1, keepdims=True) for n in counts))

    def split(n: int) -> np.ndarray:
        chosen = random.permuted(np.tile(is_first, (n, 1)), axis=1)
        return statistic(chosen, ~chosen)

    def bootstrap(n: int) -> np.ndarray:
        return statistic(
            *(random.multinomial(own.sum(), own / own.sum(), n) for own in (is_first, ~is_first))
        )

    def resampled(draw: Callable[[int], np.ndarray], n: int) -> np.ndarray:
        return np.concatenate([draw(min(batch, n - k)) for k in range(0, n, batch)])

    value = statistic(is_first, ~is_first)
    splits = resampled(split, settings.n_resamples or N_SPLITS)
    expected = splits.mean() if name in CORRECTED else 0.0
    if not settings.n_resamples:
        return Measured(float(value - expected), same=float(splits.mean() - expected))
    drawn = resampled(bootstrap, settings.n_resamples)
    tails = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
    bounds = np.clip(np.quantile(drawn, tails) - (drawn.mean() - value), 0, LARGEST)
    p = (1 + (splits >= value - EPSILON).sum()) / (1 + len(splits))
    values = value - expected, *(bounds - expected), p, splits.mean() - expected
    return Measured(*map(float, values))


def _lstm_layers(usages: UsagesFile | Usages) -> list[int]:
    """Return the numbers of the stored LSTM layers; layer 0 if no other is stored."""
    return [k for k in usages.layers if k] or [0]


def _features(name: str, vectors: np.ndarray) -> tuple[np.ndarray, Combine]:
    """Return the features (N, F) of a measure, and the function of their means."""
    if name == "apd":
        return normalized(vectors), _average_pairwise_distance
    return vectors, _prototype_distance


def ppmi_distances(frame: pandas.DataFrame, groupings: tuple[str, str]) -> dict[str, float]:
    """Return the baseline of each word; nan for a word without a common context word.

    A row of PPMI contains max(0, log p(c | word) / p(c)) for each context word c that is frequent
    in both groupings and not a form of any of the words.

    Args:
        frame: the compared usages of all words.
        groupings: the names of the two groupings.
    """
    sides = [frame[frame["grouping"] == name] for name in groupings]
    texts = [side.drop_duplicates(["text", "line"])["sentence"] for side in sides]
    words = [Counter(word for line in text for word in line.split(" ")) for text in texts]
    forms = set(frame["form"])
    shared = [c for c, n in words[0].items() if min(n, words[1][c]) >= MIN_COUNT]
    contexts = [c for c in shared if c not in forms]
    shares = [np.array([side[c] for c in contexts], float) ** SMOOTHING for side in words]

    def ppmi(k: int, word: str) -> np.ndarray:
        own = sides[k][sides[k]["word"] == word]
        near = Counter(chain.from_iterable(map(words_near, own["sentence"], own["position"])))
        counts = np.array([near[c] for c in contexts], float)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(counts / counts.sum()) - np.log(shares[k] / shares[k].sum())
        return np.maximum(logs, 0)

    every = frame["word"].unique()
    return {word: float(_prototype_distance(ppmi(0, word), ppmi(1, word))) for word in every}


# --- all words of a table ---


def measure_change(
    usages: UsagesFile | Usages, settings: Settings | None = None
) -> pandas.DataFrame:
    """Measure the change of every word of a table between two groupings.

    Args:
        usages: an open table, whose words are read one by one, or usages in memory.
        settings: how to measure.
    Returns: a data frame with a row per word and layer. Columns: word; layer, a number or "mean";
        cite: "yes", or why not to report the row, such as "fewer than 20 usages"; usages_A,
        usages_B, the numbers of compared usages in the groupings A and B; count_A, count_B, the
        numbers of usages in the texts; per_million_A, per_million_B; log_ratio, the binary
        logarithm of the ratio of the relative frequencies (B over A, with 0.5 added to the counts);
        ppmi, equal in all layers; and for each measure m: m, m_low, m_high, m_p, and m_q, the
        p-value adjusted over the words of a layer (Benjamini and Hochberg 1995). apd_same is the
        mean of `apd` over random splits. A word with fewer than two usages in a grouping has nan.
    Raises: OptionsError for groupings, layers or measures that do not exist.
    """
    settings = settings or Settings()
    pandas = optional("pandas", "analysis", "tables of usages")
    first, second = groupings = _between(usages, settings)
    stored = settings.layers or tuple(_lstm_layers(usages))
    layers = stored if settings.layers or len(stored) == 1 else (None,)
    rows: list[dict[str, Any]] = []
    frames = []
    with progress("measuring change", "words", len(usages.words)) as shown:
        for word, own in shown.over(usages.by_word(stored)):
            own = compared(own, settings, groupings)
            is_first = (own.frame["grouping"] == first).to_numpy()
            sizes = {f"usages_{first}": is_first.sum(), f"usages_{second}": (~is_first).sum()}
            sizes |= _frequencies(word, own, groupings)
            frames.append(own.frame)
            cite = "one of several layers" if len(layers) > 1 else "yes"
            if min(is_first.sum(), (~is_first).sum()) < FEW:
                cite = f"fewer than {FEW} usages"
            for layer in layers:
                label = MEAN if layer is None else layer
                row = {"word": word, "layer": label, "cite": cite, **sizes, "ppmi": float("nan")}
                for name in settings.measures:
                    found = measure(name, own, is_first, layer, settings)
                    row[name] = found.value
                    if name not in CORRECTED:
                        row[f"{name}_same"] = found.same
                    row |= {f"{name}_low": found.low, f"{name}_high": found.high}
                    row |= {f"{name}_p": found.p, f"{name}_q": float("nan")}
                rows.append(row)
    if not rows:
        raise DataError("the table contains no usages; write it with words that occur in the texts")
    frame = pandas.DataFrame(rows)
    adjusted = optional("scipy.stats", "analysis", "tests").false_discovery_control
    for name in settings.measures:
        for own in frame.dropna(subset=f"{name}_p").groupby("layer").groups.values():
            frame.loc[own, f"{name}_q"] = adjusted(frame.loc[own, f"{name}_p"])
    frame["ppmi"] = frame["word"].map(ppmi_distances(pandas.concat(frames), groupings))
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
