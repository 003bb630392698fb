"""The words that a language model predicts."""

from collections.abc import Sequence

import numpy as np

from bilm.data.marks import MARKS
from bilm.data.vocabulary import Vocabulary
from bilm.scoring.scores import Logs, Substitute

ZIPF_OFFSET = 2.7  # P(word) is proportional to 1 / (rank + offset), after Mandelbrot


class PredictedWords(Vocabulary):
    """The V words, in the order of ids, that a language model predicts, including `MARKS`.

    Attributes: `proper`, integer ids of possible substitutes: no marks, each word once.
    """

    def __init__(self, words: Sequence[str]):
        super().__init__("vocabulary", words=words)
        self.require_marks()
        others = {"", *MARKS}
        proper = [i for word, i in self._ids.items() if word not in others]
        self.proper = np.array(sorted(proper), int)

    def both_sides(self, logs: Logs, has_unknown: bool = False) -> np.ndarray:
        """Return the log-probability of each word given both sides of a position, float64 (V,).

        If the sides are independent given the word, P(w | left, right) is proportional to
        P(w | left) P(w | right) / P(w). P(w) follows Zipf's law by the rank in the vocabulary,
        which is sorted by descending frequency. Marks have the probability 0.

        Args:
            logs: log-probabilities of all words by direction, (V,). Of a forward-only model, the
                left side decides.
            has_unknown: whether `<UNK>` can occur, for words that the vocabulary lacks.
        """
        ids = self.proper
        if has_unknown:
            ids = np.append(ids, self.unk)
        summed = np.sum(list(logs.values()), axis=0)
        product = np.full(len(summed), -np.inf)
        product[ids] = summed[ids]
        if len(logs) == 2:
            ranks = np.arange(len(summed))
            product += np.log(ranks + ZIPF_OFFSET)
        return product - np.logaddexp.reduce(product)

    def likeliest(self, logs: np.ndarray, n: int) -> list[Substitute]:
        """Return the `n` words, without marks, with the largest log-probabilities, float (V,)."""
        order = np.argsort(-logs[self.proper], kind="stable")
        likeliest = self.proper[order[:n]]
        return [Substitute(self.words[i], float(logs[i])) for i in likeliest]
