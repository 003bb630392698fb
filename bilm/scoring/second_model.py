"""A second model, which is mixed with the biLM that scores a text."""

from collections.abc import Sequence, Set
from typing import Protocol

from bilm.scoring.scores import Logs, Score
from bilm.storage.stored_model import StoredModel
from bilm.support.entry_points import entry_points_of, loaded

# The studies add the one entry point of this group, an object with the method `load`.
GROUP = "bilm.second_models"


class SecondModel(Protocol):
    """A model that predicts the words of the biLM's vocabulary from a text, such as a memory of the
    training text."""

    @property
    def digests(self) -> Set[int]:
        """The digests of the sentences of its text, see `bilm.data.sentence_digest`."""

    def mixed(self, score: Score, remembered: Logs | None = None) -> Score:
        """Return the score by the mixture of the biLM, whose score is given, and this model.
        `remembered`: this model's log-probabilities of the sentence; None to compute them."""


def load_second_model(path: str, model: StoredModel, words: Sequence[str]) -> SecondModel:
    """Read a file by the entry point for such files; `words` is the vocabulary of the biLM, in the
    order of ids. Raises: BilmError."""
    entry = entry_points_of(GROUP)[0]
    return loaded(entry).load(path, model, words)
