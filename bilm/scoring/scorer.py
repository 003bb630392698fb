"""`Scorer`: log-probabilities of sentences and likely substitutes of a word, of a stored model."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from bilm.data.alphabets import ByteAlphabet
from bilm.data.marks import BOS, EOS, MARKS, UNK
from bilm.data.tokenization import MAX_PARTS, check_batch, checked_sentence
from bilm.data.windows import KEY_SUFFIX, Row, distinct_shapes, empty_window, model_batch
from bilm.errors import DataError, OptionsError
from bilm.inference.grouping import batches
from bilm.language_model import BiLM
from bilm.layers.functional import compiled
from bilm.scoring.exponents import first_exponents
from bilm.scoring.filling import Filler, Gap
from bilm.scoring.gaps import MASK, CandidateWords
from bilm.scoring.memory.file import StoredMemory
from bilm.scoring.memory.fitting import fit_memory, fit_shares
from bilm.scoring.memory.prediction import Memory
from bilm.scoring.perplexity import Perplexity
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.progress import progress

PathLike = str | Path  # of a file or folder
Text = list[list[str]]  # a sentence after the sentences that are its context
WINDOW_BATCHES = 4  # number of batches whose sentences are sorted by length together
ZIPF_OFFSET = 2.7  # P(word) is proportional to 1 / (rank + offset), after Mandelbrot
PREDICTED_AT_ONCE = 1 << 24  # log-probabilities (positions times words) computed at once


class Substitute(NamedTuple):
    """A word and its log-probability at a position, in nats."""

    word: str
    log_probability: float


class Predicted(NamedTuple):
    """The distribution over the vocabulary, with its marks, that a direction predicts at a place.

    Fields:
        entropy: in nats.
        rank: 1 plus the number of words that are likelier than the word at the place.
        likeliest: the likeliest words, in descending order.
    """

    entropy: float
    rank: float
    likeliest: list[Substitute]

    @classmethod
    def of(cls, found: Sequence[np.ndarray], words: Sequence[str]) -> list[Predicted]:
        """Return each of the distributions that `described` has described; `words` by id."""
        return [
            cls(h, rank, [Substitute(words[i], log) for log, i in zip(logs, ids, strict=True)])
            for h, rank, logs, ids in zip(*(each.tolist() for each in found), strict=True)
        ]


def described(scores: Any, ids: Any, n: int) -> list[Any]:
    """Describe N distributions over V words, each proportional to exp(score).

    Args:
        scores: float (N, V).
        ids: integer (N,), the words that occur.
        n: number of likeliest words, at most V.
    Returns: log-probabilities in nats of these words, float (N,); entropies in nats, float (N,);
        ranks, integer (N,); and the `n` largest log-probabilities, float (N, n), with their words,
        integer (N, n).
    """
    scores = scores - ops.max(scores, axis=1, keepdims=True)
    shares = ops.exp(scores)
    total = ops.sum(shares, axis=1)
    normalizer = ops.log(total)
    entropies = normalizer - ops.sum(shares * scores, axis=1) / total
    own = ops.take_along_axis(scores, ids[:, None], axis=1)
    ranks = 1 + ops.sum(ops.cast(scores > own, "int32"), axis=1)
    best, words = ops.top_k(scores, n)
    return [own[:, 0] - normalizer, entropies, ranks, best - normalizer[:, None], words]


class Score(NamedTuple):
    """The log-probabilities of a sentence w_1 ... w_T in each direction, in nats.

    The arrays have T + 1 entries each, one per prediction. For word `i` of the sentence, counted
    from 0, read `tokens[i]`, `is_known[i]`, `forward[i]` and `backward[i + 1]`:

        position      0     1    ...   T - 1   T
        tokens       w_1   w_2   ...    w_T
        is_known     w_1   w_2   ...    w_T   </S>
        forward      w_1   w_2   ...    w_T   </S>
        backward     <S>   w_1   ...  w_T-1   w_T

    Fields:
        forward: float32 (T + 1,): each word and then `</S>`, given the words to its left.
        backward: float32 (T + 1,): `<S>` and then each word, given the words to its right. None
            for a forward-only model.
        tokens: the words of the sentence, T of them.
        is_known: boolean (T + 1,): whether the vocabulary contains the word. The value of a word
            that it lacks is the log-probability of `<UNK>`, which all such words share; do not
            compare it with the value of a known word. The last entry, for `</S>`, is True.
        predicted: for each direction, what it predicts at the T + 1 places of its array; None
            unless it was requested.
    """

    forward: np.ndarray
    backward: np.ndarray | None
    tokens: list[str]
    is_known: np.ndarray
    predicted: dict[str, list[Predicted]] | None = None

    @property
    def n_predictions(self) -> int:
        """The number of predictions in each direction, T + 1."""
        return len(self.forward)

    @property
    def total(self) -> dict[str, float]:
        """The log-probability of the sentence, by direction."""
        return {name: float(log.sum(dtype=np.float64)) for name, log in self.logs.items()}

    @property
    def logs(self) -> dict[str, np.ndarray]:
        """The arrays by direction."""
        arrays = {"forward": self.forward, "backward": self.backward}
        return {name: array for name, array in arrays.items() if array is not None}

    def mixed(self, memory: Memory) -> Score:
        """Return the score by the mixture of the model and a memory of its training text."""
        logs = memory.mixed(self.tokens, self.logs)
        return self._replace(forward=logs["forward"], backward=logs.get("backward"))

    @property
    def mean(self) -> float:
        """The mean log-probability per prediction, over all directions."""
        totals = self.total.values()
        return sum(totals) / len(totals) / self.n_predictions


class Substitutes(NamedTuple):
    """The likeliest words at a position, the likeliest first.

    Fields:
        forward: given the words to the left of the position.
        backward: given the words to its right; None for a forward-only model.
        both: given both sides, by P(word | left) P(word | right) / P(word), normalized; see
            `Scorer.both_sides`. None for a forward-only model.
        is_known: whether the vocabulary contains the word at the position. The lists never contain
            a word that the vocabulary lacks.
    """

    forward: list[Substitute]
    backward: list[Substitute] | None
    both: list[Substitute] | None
    is_known: bool


class Scorer:
    """Computes probabilities with a language model, by its full softmax, from zero state.

    A word that the vocabulary lacks is predicted as `<UNK>`, see `Score.is_known`. A model that
    reads characters still reads such a word by its own characters.

    Args:
        model: a `BiLM` with its softmax and without padding.
        words: the vocabulary in the order of ids, including the marks `<S>`, `</S>` and `<UNK>`.
        batch_tokens: maximum number of predictions in a batch, including padding; a longer sentence
            is run in parts of this length. Bounds memory and does not change results.
    Raises: DataError if the vocabulary is not the model's; ValueError for a model without a softmax
        or with padding, or `batch_tokens` below 1.

    Example:
        scorer = bilm.load_scorer("run")
        score = next(scorer.score([["The", "bank", "closed", "."]]))
        scorer.substitutes(["The", "bank", "closed", "."], 1).both  # instead of "bank"
    """

    def __init__(self, model: BiLM, words: Sequence[str], batch_tokens: int = 1024):
        if model.softmax is None or model.padding or batch_tokens < 1:
            raise ValueError(
                "expected a model with softmax and without padding, and batch_tokens of 1 or more"
            )
        self.model, self.words, self.batch_tokens = model, words, batch_tokens
        self._ids = {word: i for i, word in enumerate(words)}  # the last one of equal words
        if len(words) != model.n_tokens or not self._ids.keys() >= set(MARKS):
            raise DataError(
                f"the vocabulary has {len(words):,} words; expected the {model.n_tokens:,} of the "
                f"model, including {' '.join(MARKS)}"
            )
        proper = [self._ids[w] == i and w not in ("", *MARKS) for i, w in enumerate(words)]
        self.proper = np.flatnonzero(proper)
        char_cnn = model.options.char_cnn
        self._spell = ByteAlphabet(char_cnn.max_characters_per_token) if char_cnn else None
        shapes, of_ids = distinct_shapes(model.options), keras.KerasTensor((None, None), "int32")
        tensors = [keras.KerasTensor(s, "int32") for s in (shapes if self._spell else [shapes])]
        distinct: Any = tuple(tensors) if self._spell else tensors[0]
        by_direction = dict.fromkeys(model.directions, of_ids)
        batch = {"distinct": distinct, "places": by_direction, "targets": dict(by_direction)}
        state = model.flatten_state(model.zero_state(0))
        state = [keras.KerasTensor((None, part.shape[1]), "float32") for part in state]
        mask = keras.KerasTensor((None, None), "bool")
        width = model.options.lstm.projection_dim
        hidden = {d: keras.KerasTensor((None, None, width), "float32") for d in model.directions}
        self._run_outputs = compiled(self._outputs, [batch, mask, state])
        self._run_losses = compiled(self._losses, [hidden, by_direction])
        vectors, ids = (
            keras.KerasTensor((None, width), "float32"),
            keras.KerasTensor((None,), "int32"),
        )
        self._run_logs = compiled(self._logs, [vectors])
        self._run_described = cache(
            lambda n: compiled(partial(self._described, n=n), [vectors, ids])
        )

    def score(
        self,
        sentences: Iterable[Sequence[str]],
        context: int = 0,
        n_likeliest: int | None = None,
    ) -> Iterator[Score]:
        """Score a stream of sentences in bounded memory; yield the results in the same order.

        About `WINDOW_BATCHES * batch_tokens` words are read ahead and sorted by length. The score
        of a sentence does not depend on other sentences. In a sentence without words only a mark is
        predicted.

        Args:
            sentences: lists of words.
            context: number of sentences before a sentence that both directions read first, in
                their order, as in training; the LSTM state is carried from them.
            n_likeliest: number of likeliest words in `Score.predicted`; None to leave it out.
        Raises: DataError if a sentence is not a list of words.
        """
        check_batch(sentences)
        window: list[Text] = []
        before: deque[list[str]] = deque(maxlen=context)
        n_tokens = 0
        for number, sentence in enumerate(sentences):
            words = _checked_words(sentence, f"sentence {number}")
            window.append([*before, words])
            before.append(words)
            n_tokens += sum(map(len, window[-1])) + len(window[-1])
            if n_tokens >= WINDOW_BATCHES * self.batch_tokens:
                yield from self._score(window, n_likeliest)
                window, n_tokens = [], 0
        yield from self._score(window, n_likeliest)

    def substitutes(self, tokens: Sequence[str], position: int, n: int = 10) -> Substitutes:
        """Return the `n` likeliest words at a position, independently of its word.

        Probabilities are normalized over the whole vocabulary. The lists omit the marks `<S>`,
        `</S>` and `<UNK>`.

        Args:
            tokens: a sentence.
            position: index of a word, from 0.
            n: maximum number of words.
        Raises: DataError if `tokens` is not a list of words or has no such position; ValueError
            if `n` is below 1.
        """
        words = _checked_words(tokens, "the sentence")
        if n < 1:
            raise ValueError(f"n is {n}, expected at least 1")
        logs = next(self.log_probabilities(words, [position]))
        is_known = words[position] in self._ids
        best = {name: self._best(log, n) for name, log in logs.items()}
        if "backward" not in logs:
            return Substitutes(best["forward"], None, None, is_known)
        return Substitutes(**best, both=self._best(self.both_sides(logs), n), is_known=is_known)

    def both_sides(self, logs: dict[str, np.ndarray], ids: np.ndarray | None = None) -> np.ndarray:
        """Return the log-probability of each word of the vocabulary given both sides of a position.

        If the sides are independent given the word, P(w | left, right) is proportional to
        P(w | left) P(w | right) / P(w). P(w) follows Zipf's law by the rank in the vocabulary,
        which is sorted by descending frequency. Other words than `ids` have the probability 0.

        Args:
            logs: a result of `log_probabilities`; of a forward-only model, the left side decides.
            ids: the words that can occur; None for all except marks.
        """
        product, ids = np.full(len(self.words), -np.inf), self.proper if ids is None else ids
        product[ids] = np.sum(list(logs.values()), axis=0)[ids]
        if len(logs) == 2:
            product += np.log(np.arange(len(self.words)) + ZIPF_OFFSET)
        return product - np.logaddexp.reduce(product)

    def fill(
        self, tokens: Sequence[str], n: int = 10, mask: str = MASK, words: Iterable[str] = ()
    ) -> list[Gap]:
        """Fill the gaps of a sentence: lost words, and lost letters of words.

        Several gaps are filled jointly: first the one whose best word is the most probable, then
        the others given this word, and finally each given the best words of all others.

        Args:
            tokens: a sentence. `mask` is a lost word; `ki[..]g` is a word without two of its
                letters, and `k[---]` a word without an unknown number of letters.
            n: maximum number of words for each gap.
            words: candidates besides the vocabulary.
        Returns: the gaps in the order of the sentence.
        Raises: DataError if `tokens` is not a list of words; ValueError if `n` is below 1.
        """
        return self.filler(words).fill(_checked_words(tokens, "the sentence"), n, mask)

    def filler(
        self,
        words: Iterable[str] = (),
        memory: Memory | None = None,
        exponents: np.ndarray | None = None,
    ) -> Filler:
        """Return a `Filler` for several calls of `fill` with the same words, and with a memory.

        Args:
            words: candidates besides the vocabulary.
            memory: memory of the training text; None for none.
            exponents: those fitted with the memory, see `StoredMemory`; None for first ones.
        Raises: DataError if the memory was fitted to a model with other directions.
        """
        n_directions = len(self.model.directions)
        if memory is not None:
            memory.check_directions(n_directions)
        if exponents is None:
            exponents = first_exponents(n_directions, memory is not None)
        # `<UNK>` represents words that the vocabulary lacks.
        ids: np.ndarray = np.append(self.proper, self._ids[UNK])

        def score_words(tokens: list[str], position: int) -> np.ndarray:
            return self.both_sides(next(self.log_probabilities(tokens, [position])), ids)

        def score_sentences(sentences: Iterable[list[str]]) -> np.ndarray:
            return np.array([list(score.total.values()) for score in self.score(sentences)])

        candidates = CandidateWords.of(self.words, self.proper, words)
        return Filler(candidates, score_words, score_sentences, exponents, memory)

    def memory(
        self, text: Iterable[Sequence[str]], heldout: Iterable[Sequence[str]]
    ) -> tuple[StoredMemory, Perplexity, Perplexity]:
        """Return the memory of a training text, fitted to held-out text, whose perplexities with
        and without the memory follow. Raises: DataError."""
        with progress("scoring held-out text", "sentences") as bar:
            scores = list(bar.over(self.score(heldout)))
        if not any(score.tokens for score in scores):
            raise DataError("held-out text: found no words, expected at least one sentence")
        alone = perplexity_of_scores(scores)

        memory = fit_memory(text, self.words)
        losses = fit_shares(memory, [(score.tokens, score.logs) for score in scores])
        mixed = Perplexity.of(losses, alone.n_predictions)
        exponents = self.filler(memory=memory).fit_exponents([score.tokens for score in scores])
        return StoredMemory(memory, exponents), mixed, alone

    def known(self, word: str) -> str:
        """Return the word itself if the vocabulary contains it, `<UNK>` otherwise."""
        return word if word in self._ids else UNK

    def log_probabilities(
        self, tokens: Sequence[str], positions: Sequence[int]
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield the log-probability of every word of the vocabulary at positions of a sentence.

        Args:
            tokens: a sentence. The word at a position does not affect the result there.
            positions: indices of words, from 0.
        Returns: for each position, a dict from direction to log-probabilities in nats, float32
            (V,), ordered by word id.
        Raises: DataError if `tokens` is not a list of words or has no such position.
        """
        words = _checked_words(tokens, "the sentence")
        places = np.array([_checked_position(position, len(words)) for position in positions], int)
        _, batch = next(self._batches([[words]], 1, len(words) + 1))
        # A prediction depends on the words read before it only, so one run gives all of them.
        state = self.model.flatten_state(self.model.zero_state(1))
        hidden, _ = self._run_outputs(batch, np.ones((1, len(words) + 1), bool), state)
        steps = {"forward": places, "backward": len(words) - 1 - places}
        for parts in zip(*(self._all_logs(hidden[d][0], steps[d]) for d in hidden), strict=True):
            rows = zip(*map(ops.convert_to_numpy, parts), strict=True)
            yield from (dict(zip(hidden, row, strict=True)) for row in rows)

    def _as_score(self, words: list[str], found: dict[str, list[np.ndarray]]) -> Score:
        """Return the score of a sentence from the results of `_measured` for its predictions."""
        if "backward" in found:
            found["backward"] = [each[::-1].copy() for each in found["backward"]]
        logs: dict[str, np.ndarray] = {d: each[0].astype(np.float32) for d, each in found.items()}
        is_known = np.array([word in self._ids for word in (*words, EOS)])
        predicted = {d: Predicted.of(rest, self.words) for d, (_, *rest) in found.items() if rest}
        return Score(logs["forward"], logs.get("backward"), words, is_known, predicted or None)

    def _score(self, window: list[Text], n_likeliest: int | None) -> list[Score]:
        scores: dict[int, Score] = {}
        lengths = np.array([sum(map(len, text)) + len(text) for text in window], np.int64)
        for rows, n_rows in batches(lengths, self.batch_tokens):
            texts = [window[i] for i in rows]
            ends = np.cumsum([len(text[-1]) + 1 for text in texts])[:-1]
            found = self._run(texts, lengths[rows], n_rows, n_likeliest)
            split = {d: [np.split(each, ends) for each in own] for d, own in found.items()}
            for row, i in enumerate(rows):
                own = {d: [each[row] for each in parts] for d, parts in split.items()}
                scores[i] = self._as_score(window[i][-1], own)
        return [scores[i] for i in range(len(window))]

    def _run(
        self, texts: list[Text], n_predictions: np.ndarray, n_rows: int, n: int | None
    ) -> dict[str, list[np.ndarray]]:
        """Run over texts, sorted by descending numbers of predictions, in `n_rows` rows.

        Returns: for each direction the results of `_measured` for the predictions of the last
            sentence of each text, in reading order, one text after another.
        """
        lengths: np.ndarray = np.zeros((n_rows, 1), np.int64)
        lengths[: len(texts), 0] = n_predictions
        starts = lengths.copy()  # of the last sentences
        starts[: len(texts), 0] -= [len(text[-1]) + 1 for text in texts]
        parts: list[dict[str, list[np.ndarray]]] = []
        state = self.model.flatten_state(self.model.zero_state(n_rows))
        # Below T for a single long sentence, whose parts therefore follow one another.
        n_steps = max(self.batch_tokens // n_rows, 1)
        for steps, batch in self._batches(texts, n_rows, n_steps):
            places = np.arange(steps.start, steps.stop)
            mask = places < lengths
            last, state = self._run_outputs(batch, mask, state)
            own = mask & (places >= starts)
            parts.append(self._measured(last, batch["targets"], own, n))
        return {
            d: [np.concatenate(each) for each in zip(*(part[d] for part in parts), strict=True)]
            for d in parts[0]
        }

    def _measured(
        self, hidden: dict[str, Any], targets: dict[str, Any], own: np.ndarray, n: int | None
    ) -> dict[str, list[np.ndarray]]:
        """Return for each direction, at the places `own`, boolean (B, T), the log-probabilities of
        the targets, float (M,); and unless `n` is None the other results of `described`."""
        if n is None:
            losses = self._run_losses(hidden, targets).items()
            return {d: [-ops.convert_to_numpy(loss)[own]] for d, loss in losses}
        run, found = self._run_described(min(n, len(self.words))), {}
        at_once = max(1, PREDICTED_AT_ONCE // len(self.words))
        for d, last in hidden.items():
            vectors, ids = ops.convert_to_numpy(last)[own], targets[d][own]
            slices = [slice(k, k + at_once) for k in range(0, max(1, len(ids)), at_once)]
            parts = [map(ops.convert_to_numpy, run(vectors[k], ids[k])) for k in slices]
            found[d] = [np.concatenate(each) for each in zip(*parts, strict=True)]
        return found

    def _all_logs(self, hidden: Any, steps: np.ndarray) -> Iterator[Any]:
        """Yield the log-probabilities of all words at steps of one row, float (n, V), in parts."""
        n = max(1, PREDICTED_AT_ONCE // len(self.words))
        for start in range(0, len(steps), n):
            yield self._run_logs(ops.take(hidden, steps[start : start + n], axis=0))

    def _batches(
        self, texts: list[Text], n_rows: int, n_steps: int
    ) -> Iterator[tuple[slice, dict]]:
        """Split the steps of texts, which are sorted by descending length, into parts; yield each
        part with its batch."""
        n_chars = self._spell.width if self._spell else None
        rows = {d: self._rows(texts, d == "backward") for d in self.model.directions}
        n_predictions = sum(map(len, texts[0])) + len(texts[0])
        for start in range(0, n_predictions, n_steps):
            steps = slice(start, min(start + n_steps, n_predictions))
            window: dict[str, Any] = {}
            for direction, own in rows.items():
                part = empty_window(n_rows, steps.stop - start, n_chars)
                for row in own:
                    row.advance(steps.stop - start, part)
                window |= {key + KEY_SUFFIX[direction]: ids for key, ids in part.items()}
            yield steps, model_batch(window, self.model.options)

    def _rows(self, texts: list[Text], reverse: bool) -> list[Row]:
        def encode(words: list[str]) -> tuple[np.ndarray, np.ndarray | None]:
            words = [BOS, *words, EOS][:: -1 if reverse else 1]
            return self._ids_of(words), self._spell(words) if self._spell else None

        pieces = ([(0, words, 0, len(words) + 1) for words in text] for text in texts)  # whole ones
        return [Row(i, iter(text), encode) for i, text in enumerate(pieces)]

    def _ids_of(self, words: Sequence[str]) -> np.ndarray:
        return np.array([self._ids.get(word, self._ids[UNK]) for word in words], np.int32)

    def _outputs(self, batch, mask, state):
        """Continue from a state; return the last layer's outputs per direction, float (B, T, P),
        and the next state."""
        state = self.model.pack_state(state)
        outputs, state = self.model.windows(self.model.encode(batch), state, mask)
        return {d: layers[-1] for d, layers in outputs.items()}, self.model.flatten_state(state)

    def _losses(self, hidden, targets):
        """Return losses per direction, float (B, T), from the last layer's outputs."""
        return self.model.losses({d: [last] for d, last in hidden.items()}, targets)

    def _logs(self, hidden):
        """Return the log-probabilities of all words, float (N, V), from outputs (N, P)."""
        scores = self._scores(hidden)
        return scores - ops.logsumexp(scores, axis=1, keepdims=True)

    def _described(self, hidden, ids, n):
        """Describe, from outputs (N, P), what is predicted: see `described`."""
        return described(self._scores(hidden), ids, n)

    def _scores(self, hidden):
        softmax = self.model.softmax
        return ops.matmul(hidden, ops.transpose(softmax.kernel)) + softmax.bias

    def _best(self, logs: np.ndarray, n: int) -> list[Substitute]:
        order = self.proper[np.argsort(-logs[self.proper], kind="stable")[:n]]
        return [Substitute(self.words[i], float(logs[i])) for i in order]


def _checked_words(sentence: Iterable[str], name: str) -> list[str]:
    """Return the words of a sentence. Raises: DataError, also for padding and for texts."""
    words = checked_sentence(sentence, name)
    for i, word in enumerate(words):
        if not word or len(word.split()) > MAX_PARTS:
            expected = "expected a word: remove padding, split a text into words"
            raise DataError(f"{name}, word {i} is {word[:40]!r}; {expected}")
    return words


def _checked_position(position: int, n_words: int) -> int:
    """Return an index into a sentence. Raises: DataError if out of range or not an integer."""
    try:
        place = -1 if isinstance(position, bool) else operator.index(position)
    except TypeError:
        place = -1
    if not 0 <= place < n_words:
        raise DataError(
            f"position is {position!r}, but the sentence has {n_words} words; "
            f"expected an integer, 0 or more and less than {n_words}"
        )
    return place


def perplexity_of_scores(scores: Iterable[Score]) -> Perplexity:
    """Return the perplexity of scored sentences: that of `perplexity` with `stateless=True`.

    Raises: DataError if there are no sentences.
    """
    sums: dict[str, float] = {}
    n_predictions = 0
    for found in scores:
        for direction, value in found.total.items():
            sums[direction] = sums.get(direction, 0.0) - value
        n_predictions += found.n_predictions
    if not n_predictions:
        raise DataError("found no sentences, expected at least one")
    return Perplexity.of(sums, n_predictions)


# --- scoring with a stored model ---


def load_scorer(
    model: PathLike | StoredModel | None = None,
    vocab_file: PathLike | None = None,
    options_file: PathLike | None = None,
    weight_file: PathLike | None = None,
    softmax_file: PathLike | None = None,
    save_dir: PathLike | None = None,
) -> Scorer:
    """Load a language model that scores sentences and predicts words.

    Args:
        model: a run or an export with its softmax, see `bilm.storage.stored_model.open_model`.
            `save_dir` and `options_file` are other names of this argument.
        vocab_file: the vocabulary of a run; None for `vocab.txt` in its folder. An export has its
            own words.
        weight_file: the HDF5 weights, where `model` is an options file.
        softmax_file: HDF5 with `softmax/W`, `softmax/b` and `vocabulary`, as `dump_weights` writes
            it; None for `<stem>_softmax.hdf5` beside the weights.
    Raises: OptionsError, also if no model or more than one is given; WeightsError, DataError.
    """
    names = {"model": model, "save_dir": save_dir, "options_file": options_file}
    given = {name: value for name, value in names.items() if value is not None}
    if len(given) != 1:
        found = ", ".join(given) or "no model"
        raise OptionsError(f"given: {found}; expected one model, as load_scorer(model)")
    (one,) = given.values()
    stored = open_model(one, weight_file, softmax_file)
    language_model, vocab = stored.build_language_model(), stored.vocabulary(vocab_file)
    return Scorer(language_model, vocab.words)


def score(
    sentences: Iterable[Sequence[str]],
    model: PathLike | StoredModel | None = None,
    **files: PathLike | None,
) -> Iterator[Score]:
    """Yield the log-probabilities of sentences: see `Scorer.score`.

    Args:
        sentences: lists of words.
        model, files: see `load_scorer`.
    """
    return load_scorer(model, **files).score(sentences)


def substitutes(
    tokens: Sequence[str], position: int, n: int = 10, **files: PathLike
) -> Substitutes:
    """Return the likeliest words at a position: see `Scorer.substitutes`.

    `files` are the arguments of `load_scorer`. Each call loads the model; for several calls, use
    the `Scorer` that `load_scorer` returns.
    """
    return load_scorer(**files).substitutes(tokens, position, n)
