"""`Memory`: probabilities of words by the similar contexts of a text."""

from collections.abc import Iterable, Mapping, Sequence, Set

import numpy as np

from bilm.data.shards import sentence_digest
from bilm.errors import DataError
from bilm.scoring.memory.features import OFFSETS, Features
from bilm.scoring.memory.text import RememberedText
from bilm.scoring.predicted_words import PredictedWords
from bilm.scoring.scores import Logs, Score

FLOOR = 0.2  # share of the word frequencies in a prediction


class Memory:
    """Predicts a word from the places i of a text whose contexts are similar::

        P(w | context) = (1 - FLOOR) * sum of exp(s_i) with w_i = w / sum of exp(s_i) + FLOOR * P(w)
        s_i = sum over offsets k of weights[k] . phi(v at k, u at i + k)
              + weights[-1] . sum over v, u of phi(v, u)

    for words v of the context and u of the text; see `features` for phi. The last sum is over each
    different word v once, and over all words u of the sentence of place i. The context of the view
    `forward` is the words to the left, of `backward` those to the right, of `both` all.

    Args:
        words: the vocabulary in the order of ids, V of them.
        ids: the text, as `text_ids` returns it.
        weights: by view, float (offsets + 1, features).
        shares: share of the biLM in its mixture with the memory by direction, float (directions,).
        digests: of the sentences of the text, see `sentence_digest`.
    """

    def __init__(
        self,
        words: Sequence[str],
        ids: np.ndarray,
        weights: Mapping[str, np.ndarray],
        shares: np.ndarray,
        digests: Set[int] = frozenset(),
    ):
        self.digests = digests
        self.vocabulary = PredictedWords(words)
        self.text = RememberedText(ids, self.vocabulary)
        self.features = Features(self.vocabulary, self.text)
        self.weights = weights
        self.shares = shares

    def contains(self, tokens: Sequence[str]) -> bool:
        """Return whether the text contains a sentence, of three words or more."""
        return sentence_digest(tokens) in self.digests

    def log_probabilities(self, tokens: Sequence[str], position: int) -> Logs:
        """Return logarithms of the probability of each word of the vocabulary at a position, by
        view, and of its `frequency`: float64 (V,) each."""
        sentence = self.vocabulary.sentence(tokens)
        logs = {}
        for view in OFFSETS:
            logs[view] = np.log(self.probabilities(view, sentence, position + 1))
        return logs | {"frequency": np.log(self.text.frequencies)}

    def sentence_log_probabilities(self, tokens: Sequence[str], directions: Iterable[str]) -> Logs:
        """Return the log-probabilities of the words of a sentence by direction, float64 (T + 1,),
        in the order of `Score`."""
        sentence = self.vocabulary.sentence(tokens)
        logs = {}
        for direction in directions:
            first = 1 if direction == "forward" else 0  # a direction does not predict its own start
            places = range(first, first + len(tokens) + 1)
            by_place = [self.probabilities(direction, sentence, i)[sentence[i]] for i in places]
            logs[direction] = np.log(by_place)
        return logs

    def mixed(self, score: Score, remembered: Logs | None = None) -> Score:
        """Return the score by the mixture share * P_biLM(w) + (1 - share) * P_memory(w).

        Args:
            remembered: `sentence_log_probabilities` of the sentence; None to compute them.
        Raises: DataError for a model with other directions.
        """
        self.check_directions(len(score.logs))
        if remembered is None:
            remembered = self.sentence_log_probabilities(score.tokens, score.logs)
        mixture = {}
        for share, (direction, logs) in zip(self.shares, score.logs.items(), strict=True):
            log = np.log(share) + logs
            rest = np.log1p(-share) + remembered[direction]
            mixture[direction] = np.logaddexp(log, rest).astype(np.float32)
        return score._replace(**mixture)

    def check_directions(self, n_directions: int) -> None:
        """Raise DataError for a model with another number of directions than the fitted one."""
        if n_directions != len(self.shares):
            raise DataError(
                f"directions of the model: {n_directions}; expected {len(self.shares)}, as in the "
                "memory"
            )

    # --- one view at one place ---

    def probabilities(self, view: str, sentence: np.ndarray, place: int) -> np.ndarray:
        """Return the probability of each word of the vocabulary at a place of a sentence with its
        marks, which are ids (T + 2,): float64 (V,)."""
        text = self.text
        phi = self.features.of_context(view, sentence, place)
        share = self.place_shares(view, self.weights[view], phi)
        by_word = np.bincount(text.ids, share, text.nothing + 1)[:-1]
        probabilities = (1 - FLOOR) * by_word + FLOOR * text.frequencies

        # <UNK> gets half of the probability of rare words.
        probabilities[text.is_rare] /= 2
        probabilities[self.vocabulary.unknown] += probabilities[text.is_rare].sum()
        return probabilities

    def place_shares(
        self, view: str, weights: np.ndarray, phi: np.ndarray, without_sentence: int | None = None
    ) -> np.ndarray:
        """Return exp(s_i) / sum of exp(s_i) of each place i of the text, float64 (N,), by weighted
        features of a context. The places of `without_sentence` have the share 0."""
        text = self.text

        # Similarity of the context to each word u, at each offset and in the sentence
        tables = np.einsum("kf,kfv->kv", weights, phi)
        *by_offset, in_sentence = tables.astype(np.float32)  # V + 1 each

        # Similarity of the context to each place: by its sentence, then by the words around it
        of_sentences = np.add.reduceat(in_sentence[text.ids], text.starts)  # S
        similarity = of_sentences[text.sentence]  # N
        for table, offset in zip(by_offset, OFFSETS[view], strict=True):
            similarity += table[text.at_offset(offset)]

        # Softmax over the places that may be used
        is_used = text.is_predicted[view]
        if without_sentence is not None:
            is_used = is_used & (text.sentence != without_sentence)
        similarity[~is_used] = -np.inf
        share = np.exp(similarity.astype(np.float64) - similarity.max())
        return share / share.sum()
