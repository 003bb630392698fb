"""The evaluation that is stored with a run or an export."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from bilm.errors import OptionsError
from bilm.scoring.perplexity import Perplexity
from bilm.scoring.verdict import Comparison, Verdict
from bilm.storage.stored_model import StoredModel


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
