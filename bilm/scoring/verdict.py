"""The evaluation that is stored with a model, and the verdict on the model: its perplexity beside
those of bigrams and word frequencies, and advice."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bilm.data.vocabulary import Vocabulary
from bilm.errors import OptionsError
from bilm.options import schema
from bilm.options.schema import POSITIVE, SHARE, Checked, key
from bilm.scoring.ngrams import Ngrams
from bilm.scoring.perplexity import Perplexity
from bilm.storage.stored_model import StoredModel

SPREAD = 1.2  # of the expected range, around its middle
USEFUL_GAIN = 0.03  # smaller ones are not worth the time
MIN_PREDICTIONS = 200  # with fewer, models differ by chance
MANY_UNKNOWN = 0.2  # share of the words


@dataclass(frozen=True)
class Comparison(Checked):
    """What the perplexity of a model is compared with, and how the model was trained.

    `words` and `bigrams` are perplexities by the counts of the training text; if `bigrams` is None,
    `words` is by those of the measured text. `known_*` omit unknown words, whose share is
    `unknown`. `auto` recommends `n_useful` epochs, which take `hours` and lower the perplexity by
    the share `gain`, and expects a perplexity of `ratio` times that of bigrams.
    """

    unknown: float = key(SHARE)
    words: float = key(POSITIVE)
    known_words: float = key(POSITIVE)
    bigrams: float | None = key(POSITIVE, None)
    known_bigrams: float | None = key(POSITIVE, None)
    n_epochs: float | None = key(POSITIVE, None)
    n_useful: int | None = key(schema.NUMBER, None)
    hours: float | None = key(POSITIVE, None)
    ratio: float | None = key(POSITIVE, None)
    gain: float | None = key(SHARE, None)
    n_predictions: int | None = key(schema.NUMBER, None)

    @classmethod
    def of(cls, ids: np.ndarray, vocab: Vocabulary, ngrams: Ngrams | None) -> Comparison:
        """Compare with the counts of the training text or, if `ngrams` is None, of the measured
        text, whose ids are the result of `text_ids`."""

        def perplexities(probabilities: np.ndarray) -> tuple[float, float]:
            logs = np.log(probabilities)
            return float(np.exp(-logs.mean())), float(np.exp(-logs[is_known].mean()))

        is_known = ids[1:] != vocab.unk
        unknown = float((~is_known).sum() / (ids != vocab.eos).sum())
        n_predictions = len(ids) - 1
        if ngrams is None:
            # The frequencies of words in the rest of the text, with 1 added to each count
            counts = np.bincount(ids[1:])[ids[1:]]
            words = perplexities(counts / (n_predictions - 1 + vocab.size))
            return cls(unknown, *words, n_predictions=n_predictions)

        words = perplexities(ngrams.word_probabilities(ids))
        bigrams = perplexities(ngrams.probabilities(ids))
        return cls(unknown, *words, *bigrams, n_predictions=n_predictions)

    def __str__(self) -> str:
        bigrams = "" if self.bigrams is None else f"bigrams alone: {self.bigrams:,.2f}; "
        return f"{bigrams}{100 * self.unknown:.1f} % of its words unknown"

    @property
    def baselines(self) -> dict[str, tuple[float, float]]:
        """The two perplexities of each thing that the model is compared with, by its name."""
        words = (self.words, self.known_words)
        if self.bigrams is None or self.known_bigrams is None:
            return {"word frequencies of the tested text": words}
        bigrams = (self.bigrams, self.known_bigrams)
        return {
            "bigrams of the training text": bigrams,
            "word frequencies of the training text": words,
        }

    @property
    def expected(self) -> tuple[float, float] | None:
        """The range of perplexity that `auto` expects, at most that of word frequencies."""
        if self.ratio is None or self.bigrams is None:
            return None
        middle = self.ratio * self.bigrams
        return min(middle / SPREAD, self.words), min(middle * SPREAD, self.words)


@dataclass(frozen=True)
class Verdict:
    """The perplexity of a model beside those of what it is compared with; `known`: its perplexity
    without unknown words."""

    perplexity: float
    known: float | None
    compared: Comparison

    def __repr__(self) -> str:
        return "\n".join(self.lines)

    @property
    def lines(self) -> list[str]:
        """The verdict in words, the advice last."""
        compared = self.compared
        lines = []
        for k, (name, value) in enumerate(self._measured.items()):
            figures = []
            for baseline, both in compared.baselines.items():
                result = f"the model is {_difference(value, both[k])}"
                figures.append(f"{baseline} {both[k]:,.2f} ({result})")
            lines.append(f"{name}: {value:,.2f}; {', '.join(figures)}")

        if compared.expected is not None:
            least, most = map(round, compared.expected)
            result = "reached"
            if round(self.perplexity) > most:
                result = f"not reached, {_difference(self.perplexity, most)}"
            lines.append(f"auto expected {least:,} to {most:,}: {result}")
        if compared.n_epochs is not None:
            useful = "" if compared.n_useful is None else f" of {compared.n_useful} useful ones"
            lines.append(f"epochs read: {compared.n_epochs:.2f}{useful}")
        return [*lines, f"advice: {self.advice}"]

    @property
    def is_worse(self) -> bool:
        """Whether something that the model is compared with is better."""
        return any(
            value > both[k]
            for k, value in enumerate(self._measured.values())
            for both in self.compared.baselines.values()
        )

    @property
    def advice(self) -> str:
        """What to do next."""
        compared = self.compared
        n_predictions = compared.n_predictions or MIN_PREDICTIONS
        if n_predictions < MIN_PREDICTIONS:
            return (
                f"longer held-out text: found {n_predictions} predictions, expected "
                f"{MIN_PREDICTIONS} or more, because such differences may be chance"
            )
        gain = compared.gain or 0.0
        if gain >= USEFUL_GAIN:
            hours = compared.hours
            time = "" if hours is None else f", about {hours:,.2f} hours (--hours),"
            return (
                f"more time: a new run of all {compared.n_useful} useful epochs{time} should be "
                f"{100 * gain:.0f} % better"
            )
        if self.is_worse:
            epochs = "more epochs (--n_epochs), " if compared.n_useful is None else ""
            return f"{epochs}more text or a smaller model"
        if compared.unknown > MANY_UNKNOWN:
            percent = 100 * compared.unknown
            return f"more text or a lower --min_count: {percent:.1f} % of the words are unknown"
        if compared.bigrams is None:
            return "none, because the counts of the training text are not stored with the model"
        return "none needed"

    @property
    def _measured(self) -> dict[str, float]:
        """The perplexity, and that without unknown words if there are any, by their names."""
        measured = {"perplexity": self.perplexity}
        if self.known is not None and self.compared.unknown:
            measured[f"without unknown words, {100 * self.compared.unknown:.1f} %"] = self.known
        return measured


def _difference(model: float, other: float) -> str:
    """Return by how many percent a perplexity is better or worse than another one."""
    percent = 100 * (model / other - 1)
    return f"{abs(percent):.1f} % {'worse' if percent > 0 else 'better'}"


class Measurement(NamedTuple):
    """The last evaluation of a run, as `heldout.json` stores it: the number of steps before it, the
    perplexity, the files of the text, and the comparison, which older records lack."""

    step: int
    perplexity: Perplexity
    text: list[str]
    compared: Comparison | None = None

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Measurement:
        """Restore it from the result of `to_record` as JSON. Raises: OptionsError."""
        perplexity = Perplexity.from_record(record)
        stored = record.get("compared")
        compared = None
        if isinstance(stored, Mapping):
            compared = Comparison.from_dict(stored)
        return cls(record.get("step", -1), perplexity, record.get("text", []), compared)

    def to_record(self) -> dict[str, Any]:
        """Return the content of `heldout.json`."""
        compared = self.compared and self.compared.to_dict()
        figures = self.perplexity._asdict()
        return {"step": self.step, **figures, "text": self.text, "compared": compared}

    @classmethod
    def of(cls, model: StoredModel) -> Measurement | None:
        """Return the evaluation that a run stores for its last step, or an export for the model;
        None if there is none."""
        with suppress(OptionsError):  # no record, or a damaged one
            return cls.from_record(model.evaluation())
        return None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the model; None for an older record."""
        if self.compared is None:
            return None
        return Verdict(self.perplexity.mean, self.perplexity.known, self.compared)
