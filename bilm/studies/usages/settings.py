"""How change is measured, without NumPy and SciPy, which `--help` must not import."""

from collections.abc import Collection
from dataclasses import dataclass

# Measures, which `bilm.studies.usages.measures` defines, between the groupings {} and {}
MEASURES = {
    "apd": "mean cosine distance between a usage in {} and a usage in {}",
    "prt": "cosine distance between the mean vectors in {} and {}, less that of random splits",
}
MIN_USAGES = 20  # per grouping; with fewer, a value is mostly chance
LEVEL = 0.05  # of adjusted p-values


@dataclass(frozen=True)
class Settings:
    """How change is measured. The first measure is the one to cite."""

    measures: tuple[str, ...] = tuple(MEASURES)
    layers: tuple[int, ...] | None = None  # None for the mean of the LSTM layers of the table
    between: tuple[str, str] | None = None  # names of two groupings; None for the only two
    n_resamples: int = 1000  # for the interval, and random splits for the test; 0 for neither
    tags: Collection[str] | None = None  # parts of speech to keep; None for all
    proper_names: bool = True  # whether they are kept: see `bilm change --help`
    seed: int = 0  # of the resamples
    controls: tuple[str, ...] = ()  # words that did not change; others must differ more


DEFAULTS = Settings()
