"""Memory of the training text: predicts the words that stood in similar contexts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from bilm.data.vocabulary import BOS, EOS, UNK
from bilm.errors import DataError
from bilm.scoring.perplexity import Perplexity
from bilm.storage.hdf5 import attribute, numbers, open_hdf5, save_hdf5
from bilm.support.progress import progress

Arrays = dict[str, np.ndarray]  # log-probabilities by direction, or weights by view
REACH = 4
LEFT, RIGHT = (-4, -3, -2, -1), (1, 2, 3, 4)
OFFSETS = {"both": LEFT + RIGHT, "forward": LEFT, "backward": RIGHT}  # that each view compares
AFFIXES = (slice(-3, None), slice(-2, None), slice(4))  # letters that words may share
FLOOR = 0.2  # share of the word frequencies in a prediction
N_STEPS, N_QUERIES, RATE, DECAY = 200, 32, 0.05, 2e-4  # of Adam
MAX_FITTED = 200_000  # ids of the text that the weights are fitted on
MIXING_STEPS = 30  # of expectation maximization


class Memory:
    """Predicts a word from the places i of a text whose contexts are similar::

        P(w | context) = (1 - FLOOR) * sum of exp(s_i) with w_i = w / sum of exp(s_i) + FLOOR * P(w)
        s_i = sum over offsets k of weights[k] . phi(v at k, u at i + k)
              + weights[-1] . sum over all words v, u of the two sentences of phi(v, u)
        phi(v, u) = [v = u], log(1 / P(v)) / 10 [v = u], and for each affix whether they share it

    for words v of the context and u of the text. The view `forward` compares the words to the left,
    `backward` those to the right, `both` all. The weights maximize the probability of words of the
    text, each predicted from the other sentences. The shares are fitted on held-out text.

    Args:
        words: the vocabulary in the order of ids.
        text: integer (N,): ids of sentences with their marks, and V `REACH` times around each.
        fitted: weights of each view, float (offsets + 1, features); `shares` of the biLM in
            `mixed`, (directions,); `exponents` of `Filler`, (directions + 4,). None before they are
            fitted.
    """

    def __init__(self, words: Sequence[str], text: np.ndarray, fitted: Arrays | None = None):
        n = len(words)
        self.words, self._ids = words, {word: i for i, word in enumerate(words)}
        self.text: np.ndarray = text.astype(np.intp)  # NumPy would convert at each use
        self._start, self._end, self._unknown = (self._ids[mark] for mark in (BOS, EOS, UNK))
        is_start, is_end = text == self._start, text == self._end
        self.starts = np.flatnonzero(is_start)
        self.sentence = np.maximum(np.cumsum(is_start) - 1, 0)
        self.skipped = {  # places whose word the view does not predict
            "both": (text == n) | is_start | is_end,
            "forward": (text == n) | is_start,
            "backward": (text == n) | is_end,
        }
        counts = np.bincount(text, minlength=n + 1)[:n]
        self.frequencies = (counts + 0.5) / (counts + 0.5).sum()
        # As in training, `<UNK>` gets half of the probability of words that occur once.
        self.once = (counts == 1) & (counts[self._unknown] == 0)
        numbers = (np.unique([w[a] for w in words], return_inverse=True)[1] for a in AFFIXES)
        self._classes = np.array([[*each, -1] for each in numbers])  # equal for equal affixes
        first = np.tile([1.5, 1.0, 0.3, 0.3, 0.3], (len(OFFSETS["both"]) + 1, 1))
        first[-1, 0] = 0  # words of the sentence that are not rare do not count
        self.fitted = fitted or {
            **{view: first[-len(offsets) - 1 :].copy() for view, offsets in OFFSETS.items()},
            **_unfitted(2),
        }

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]], words: Sequence[str]) -> Memory:
        """Return the memory, with fitted weights, of 2 or more sentences with words. Raises:
        DataError."""
        between: np.ndarray = np.full(REACH, len(words), np.int32)
        empty = cls(words, between)
        parts = [part for each in sentences for part in (empty._marked(each), between)]
        memory = cls(words, np.concatenate([between, *parts]))
        part = cls(words, memory.text[:MAX_FITTED], memory.fitted)
        if (n := len(np.unique(part.sentence[~part.skipped["both"]]))) < 2:
            raise DataError(f"number of sentences with words: {n}; expected 2 or more")
        with progress("fitting the memory", "steps", N_STEPS * len(OFFSETS)) as shown:
            for view in OFFSETS:
                rng, weights = np.random.default_rng(0), memory.fitted[view]
                places = np.flatnonzero(~part.skipped[view])
                mean, square = np.zeros_like(weights), np.zeros_like(weights)
                for step in range(1, N_STEPS + 1):
                    queries = [part._gradient(view, i) for i in rng.choice(places, N_QUERIES)]
                    gradient = np.mean(queries, axis=0) - DECAY * weights
                    mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
                    rate = RATE * min(1, 2 - 2 * step / N_STEPS) / (1 - 0.9**step)
                    weights += rate * mean / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
                    shown.add(1)
        return memory

    def _marked(self, words: Sequence[str]) -> np.ndarray:
        """Return the ids of a sentence with its marks, (T + 2,); `<UNK>` for unknown words."""
        ids = (self._ids.get(word, self._unknown) for word in words)
        return np.array([self._start, *ids, self._end])

    def _phi(self, view: str, marked: np.ndarray, place: int) -> np.ndarray:
        """Return phi of the context of a place, whose own id has no effect, and the vocabulary:
        float32 (offsets + 1, features, V + 1)."""
        around = np.pad(marked, REACH, constant_values=len(self.words))
        left = () if view == "backward" else marked[1:place]
        right = () if view == "forward" else marked[place + 1 : -1]
        phi: np.ndarray = np.zeros((*self.fitted[view].shape, len(self.words) + 1), np.float32)
        pairs = [*zip(phi, (around[place + REACH + k] for k in OFFSETS[view]), strict=False)]
        for row, word in pairs + [(phi[-1], word) for word in {*left, *right}]:
            if word not in (len(self.words), self._unknown):
                row[0, word] += 1
                row[1, word] -= np.log(self.frequencies[word]) / 10
                if word not in (self._start, self._end):
                    row[2:] += self._classes == self._classes[:, [word]]
        return phi

    def _beside(self, values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a view of the values of places, and the words of the text at offset k of them."""
        n = len(self.text)
        return values[max(-k, 0) : n - max(k, 0)], self.text[max(k, 0) : n - max(-k, 0)]

    def _shares(self, view: str, phi: np.ndarray, without: int = -1) -> np.ndarray:
        """Return exp(s_i) / sum of exp(s_i) of each place, float64 (N,), without a sentence."""
        tables = np.einsum("kf,kfv->kv", self.fitted[view], phi).astype(np.float32)
        s = np.add.reduceat(tables[-1][self.text], self.starts)[self.sentence]
        for k, table in zip(OFFSETS[view], tables, strict=False):
            own, words = self._beside(s, k)
            own += table[words]
        s[self.skipped[view] | (self.sentence == without)] = -np.inf
        share = np.exp(s.astype(np.float64) - s.max())
        return share / share.sum()

    def _gradient(self, view: str, place: int) -> np.ndarray:
        """Return the gradient by the weights of log P(word at a place of the text), where the sum
        leaves out the sentence of the place."""
        sentence, word = self.sentence[place], self.text[place]
        marked = self.text[(self.sentence == sentence) & (self.text < len(self.words))]
        phi = self._phi(view, marked, place - self.starts[sentence])
        share = self._shares(view, phi, without=sentence)
        same = np.where(self.text == word, share, 0.0)
        p = (1 - FLOOR) * same.sum() + FLOOR * self.frequencies[word]
        by_s = (1 - FLOOR) / p * (same - same.sum() * share)
        by_sentence = np.bincount(self.sentence, by_s)[self.sentence]
        pairs = [*(self._beside(by_s, k) for k in OFFSETS[view]), (by_sentence, self.text)]
        by_word = [np.bincount(words, own, phi.shape[2]) for own, words in pairs]
        return np.stack([row @ words for row, words in zip(phi, by_word, strict=True)])

    # --- predictions ---

    def _probabilities(self, view: str, marked: np.ndarray, place: int) -> np.ndarray:
        """Return the probability of each word of the vocabulary at a place, float64 (V,)."""
        share = self._shares(view, self._phi(view, marked, place))
        found = np.bincount(self.text, share, len(self.words) + 1)[:-1]
        found = (1 - FLOOR) * found + FLOOR * self.frequencies
        found[self.once] /= 2
        found[self._unknown] += found[self.once].sum()
        return found

    def log_probabilities(self, tokens: Sequence[str], i: int) -> np.ndarray:
        """Return logarithms of the probability of each word of the vocabulary at position i, by
        view, and of its frequency: float64 (V, 4)."""
        marked = self._marked(tokens)
        views = [self._probabilities(view, marked, i + 1) for view in OFFSETS]
        return np.log(np.stack([*views, self.frequencies], axis=1))

    def _recalled(self, tokens: Sequence[str], logs: Arrays) -> Arrays:
        """Return the log-probabilities of the words of a sentence, in the order of `logs`."""
        marked = self._marked(tokens)
        places = {"forward": range(1, len(marked)), "backward": range(len(marked) - 1)}
        return {
            view: np.log([self._probabilities(view, marked, i)[marked[i]] for i in places[view]])
            for view in logs
        }

    def mixed(self, tokens: Sequence[str], logs: Arrays) -> Arrays:
        """Return log(share * P_biLM(w) + (1 - share) * P_memory(w)) of the words of a sentence.
        `logs`: of the biLM, in the order of `Score`, float (T + 1,). Raises: DataError."""
        self.check(len(logs))
        pairs = zip(logs.items(), self._recalled(tokens, logs).values(), strict=True)
        return {
            direction: np.logaddexp(np.log(share) + log, np.log1p(-share) + own).astype(np.float32)
            for share, ((direction, log), own) in zip(self.fitted["shares"], pairs, strict=True)
        }

    def fit_shares(self, scored: Sequence[tuple[Sequence[str], Arrays]]) -> Perplexity:
        """Fit the shares of the biLM to sentences of held-out text and their `logs`; return the
        perplexity of the mixture."""
        recalled: list[Arrays] = []
        losses: dict[str, float] = {}
        self.fitted |= _unfitted(len(scored[0][1]))
        with progress("reading held-out text", "sentences", len(scored)) as shown:
            for tokens, logs in scored:
                recalled.append(self._recalled(tokens, logs))
                shown.add(1)
        for i, direction in enumerate(scored[0][1]):
            p = np.exp(np.concatenate([logs[direction] for _, logs in scored], dtype=np.float64))
            own = np.exp(np.concatenate([each[direction] for each in recalled]))
            share = float(self.fitted["shares"][i])
            for _ in range(MIXING_STEPS):
                share = float(np.mean(share * p / (share * p + (1 - share) * own)))
            self.fitted["shares"][i] = share = min(max(share, 1e-6), 1 - 1e-6)
            losses[direction] = -float(np.log(share * p + (1 - share) * own).sum())
        return Perplexity.of(losses, len(p))

    def check(self, n_directions: int) -> None:
        """Raise DataError for a model with another number of directions than the fitted one."""
        if n_directions != (n := len(self.fitted["shares"])):
            found = f"directions of the model: {n_directions}"
            raise DataError(f"{found}; expected {n}, as in the memory")

    # --- file ---

    def save(self, path: str | Path) -> None:
        """Write the memory as HDF5."""
        arrays = self.fitted | {"text": self.text.astype(np.int32)}
        save_hdf5(path, arrays, {"vocabulary": _digest(self.words)})

    @classmethod
    def load(cls, path: str | Path, words: Sequence[str]) -> Memory:
        """Read a memory of a vocabulary. Raises: WeightsError, DataError."""
        names = "text", *OFFSETS, "shares", "exponents"
        with open_hdf5(path) as file:
            found = {name: numbers(file, name)[...] for name in names}
            digest = attribute(file, "vocabulary")
        if digest != _digest(words):
            raise DataError(f"{path}: memory of another model, with another vocabulary")
        return cls(words, found.pop("text"), found)


def _unfitted(n_directions: int) -> Arrays:
    """Return the first values of `shares` and `exponents`; about a mean of fitted ones."""
    of_memory = [0.2, 0.5, 0.5, -0.9]
    exponents = [0.6 / n_directions] * n_directions + of_memory
    return {"shares": np.full(n_directions, 0.5), "exponents": np.array(exponents)}


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(words).encode(errors="surrogatepass")).hexdigest()
