"""`Scorer`: log-probabilities of sentences, and likely words, by a stored model."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bilm.data.marks import BOS, EOS, MARKS
from bilm.data.profile import TextSigns
from bilm.data.tokenization import MAX_PARTS, checked_sentence, checked_sentences
from bilm.data.vocabulary import Vocabulary
from bilm.errors import DataError
from bilm.inference.backend import Backend, ByDirection, open_backend
from bilm.inference.packing import READING_ORDER, pack, run_windows
from bilm.inference.words import TokenCache, WordVectors
from bilm.scoring.scores import Logs, Predicted, Score, Substitute, Substitutes
from bilm.storage.stored_model import StoredModel, open_model

PathLike = str | Path  # of a file or folder
ZIPF_OFFSET = 2.7  # P(word) is proportional to 1 / (rank + offset), after Mandelbrot
GROUP_BATCHES = 4  # number of batches whose sentences are read ahead and packed together
CACHED_WORDS = 20_000  # number of recently used words whose vectors are cached

Measure = Callable[[np.ndarray, np.ndarray], np.ndarray]  # see `Scorer._measured`


class Text(NamedTuple):
    """Sentences that follow one another from zero state."""

    sentences: list[list[str]]
    n_context: int = 0  # number of first sentences that are only read, not measured

    def n_predictions(self) -> int:
        """Return the number of predictions of a direction: of the words and ends of sentences."""
        return sum(len(words) + 1 for words in self.sentences)


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


class Scorer:
    """Computes probabilities with a language model, by its full softmax, from zero state.

    A word that the vocabulary lacks is predicted as `<UNK>`, see `Score.is_known`. A model that
    reads characters still reads such a word by its own characters.

    Args:
        backend: a stored model with its softmax: see `bilm.inference.backend.open_backend`.
        words: the vocabulary in the order of ids, including the marks `<S>`, `</S>` and `<UNK>`.
        batch_tokens: maximum number of predictions that are computed at a time. It bounds memory
            and does not change results.
    Attributes: `words`; `vocabulary`, the same as `PredictedWords`; `directions`, of the model;
        `signs`, which warns of sentences that are not tokenized, or unlike the training text.
    Raises: DataError if the vocabulary is not the model's, and in methods if a sentence is not a
        list of words; ValueError for numbers below 1, and for a model without a softmax.

    Example:
        scorer = bilm.load_scorer("run")
        score = next(scorer.score([["The", "bank", "closed", "."]]))
        scorer.substitutes(["The", "bank", "closed", "."], 1).both  # instead of "bank"
    """

    def __init__(self, backend: Backend, words: Sequence[str], batch_tokens: int = 1024):
        if backend.softmax is None or batch_tokens < 1:
            raise ValueError("expected a model with its softmax, and batch_tokens of 1 or more")
        n_words = backend.softmax.n_words
        if len(words) != n_words or not set(words).issuperset(MARKS):
            raise DataError(
                f"the vocabulary has {len(words):,} words; expected the {n_words:,} of the model, "
                f"including {' '.join(MARKS)}"
            )
        self.words = words
        self.batch_tokens = batch_tokens
        self.directions = backend.options.directions
        self.vocabulary = PredictedWords(words)
        self.signs = TextSigns("sentences to score", known=self.vocabulary)
        self._softmax = backend.softmax
        self._backend = backend
        encode = WordVectors(backend, self.vocabulary.known_ids)
        self._vectors = TokenCache(CACHED_WORDS, encode)

    def __repr__(self) -> str:
        return f"<Scorer; {len(self.words):,} words, {' and '.join(self.directions)}>"

    # --- sentences ---

    def score(
        self,
        sentences: Iterable[Sequence[str]],
        context: int = 0,
        n_likeliest: int | None = None,
    ) -> Iterator[Score]:
        """Score a stream of sentences in bounded memory; yield the results in the same order.

        About `GROUP_BATCHES * batch_tokens` words are read ahead. The score of a sentence does not
        depend on other sentences. In a sentence without words only a mark is predicted.

        Args:
            sentences: lists of words.
            context: number of sentences before a sentence that both directions read first, in
                their order, as in training; the LSTM state is carried from them.
            n_likeliest: number of likeliest words in `Score.predicted`; None to leave it out.
        """
        before: deque[list[str]] = deque(maxlen=context)
        group: list[Text] = []
        n_read = 0
        for words in self.signs.watch(sentences_to_score(sentences), list):
            group.append(Text([*before, words], len(before)))
            n_read += group[-1].n_predictions()
            before.append(words)
            if n_read >= GROUP_BATCHES * self.batch_tokens:
                yield from self._scores(group, n_likeliest)
                group = []
                n_read = 0
        yield from self._scores(group, n_likeliest)

    def score_rows(self, sentences: Iterable[Sequence[str]], n_rows: int) -> Iterator[Score]:
        """Score the sentences of a short running text; yield the results row by row.

        Each sentence is read by the row that ends first, from the state after the row's previous
        sentence, as in `bilm.scoring.running_text.perplexity`.
        """
        rows = [Text([]) for _ in range(n_rows)]
        ends = [0] * n_rows
        for words in sentences_to_score(sentences):
            row = ends.index(min(ends))
            rows[row].sentences.append(words)
            ends[row] += len(words) + 1
        return self._scores([row for row in rows if row.sentences])

    def _scores(self, texts: list[Text], n_likeliest: int | None = None) -> Iterator[Score]:
        """Yield the scores of the measured sentences of each text."""
        if not texts:
            return
        measure: Measure = self._softmax.losses
        if n_likeliest is not None:
            n = min(n_likeliest, len(self.words))
            measure = partial(self._softmax.described, n=n)
        measured = self._measured(texts, measure)

        sentences = (words for text in texts for words in text.sentences[text.n_context :])
        for words, values in zip(sentences, measured, strict=True):
            predicted = None
            if n_likeliest is None:
                logs = {direction: -losses for direction, losses in values.items()}
            else:
                predicted = {d: Predicted.of(records, self.words) for d, records in values.items()}
                # Copies, so that the records can be freed.
                logs = {direction: records["log"].copy() for direction, records in values.items()}
            is_known = np.array([word in self.vocabulary for word in (*words, EOS)])
            yield Score(logs["forward"], logs.get("backward"), words, is_known, predicted)

    def _measured(self, texts: Sequence[Text], measure: Measure) -> Iterator[ByDirection]:
        """Yield what is measured at the predictions of each measured sentence, by direction and in
        the order of the sentence, (T + 1, ...). A direction predicts each word, and then the mark
        at the end, from what it has read before.

        `measure` is a function from outputs of the last layer, float32 (N, P), and the ids of the
        words that follow, int32 (N,), to values, (N, ...).
        """
        # The vectors and ids of the U distinct words
        sentences = chain.from_iterable(text.sentences for text in texts)
        words = list(dict.fromkeys(chain((BOS, EOS), *sentences)))
        number_of = {word: number for number, word in enumerate(words)}
        table = self._vectors(words)  # U, P
        ids = self.vocabulary.known_ids(words)  # U

        # What each direction reads, and what follows, as numbers of distinct words
        packing = pack(np.array([text.n_predictions() for text in texts]))
        read: ByDirection = {d: np.zeros(packing.shape, np.int32) for d in self.directions}
        following: ByDirection = {d: np.zeros(packing.shape, np.int32) for d in self.directions}
        is_measured: np.ndarray = np.zeros(packing.shape, bool)
        measured_places = []
        for text, row, start in zip(texts, packing.rows, packing.starts, strict=True):
            for number, sentence in enumerate(text.sentences):
                stop = start + len(sentence) + 1
                place = row, slice(start, stop)
                start = stop
                marked = np.array([number_of[word] for word in (BOS, *sentence, EOS)])
                for direction in self.directions:
                    ordered = marked[READING_ORDER[direction]]
                    read[direction][place] = ordered[:-1]
                    following[direction][place] = ordered[1:]
                if number >= text.n_context:
                    is_measured[place] = True
                    measured_places.append(place)

        # The measured values, one window of steps after another
        values: ByDirection = {}
        for steps, layers in run_windows(self._backend, packing, table, read, self.batch_tokens):
            is_used = is_measured[:, steps]
            for direction, outputs in layers.items():
                last_layer = outputs[-1]  # B, T, P
                next_words = following[direction][:, steps]  # B, T
                measured = measure(last_layer[is_used], ids[next_words[is_used]])  # N, ...
                if direction not in values:
                    shape = *packing.shape, *measured.shape[1:]
                    values[direction] = np.empty(shape, measured.dtype)
                values[direction][:, steps][is_used] = measured
        for place in measured_places:
            yield {d: grid[place][READING_ORDER[d]] for d, grid in values.items()}

    # --- words at a position ---

    def log_probabilities(self, tokens: Sequence[str], positions: Sequence[int]) -> Iterator[Logs]:
        """Yield the log-probability of every word of the vocabulary at positions of a sentence,
        from 0: for each position, a dict from direction to nats, float32 (V,), ordered by word id.
        The word at a position does not affect the result there. Raises: DataError if the sentence
        has no such position."""
        words = _checked_words(tokens, "the sentence")
        for position in positions:
            is_integer = isinstance(position, int | np.integer) and not isinstance(position, bool)
            if not is_integer or not 0 <= position < len(words):
                raise DataError(
                    f"position is {position!r}, but the sentence has {len(words)} words; "
                    f"expected an integer, 0 or more and less than {len(words)}"
                )
        places = np.array(positions, int)

        # A prediction depends on the words read before it only, so one run gives all of them.
        text = Text([words])
        (hidden,) = self._measured([text], lambda vectors, _: vectors)
        steps = {"forward": places, "backward": places + 1}  # as in `Score`
        rows = []
        for direction in self.directions:
            vectors = hidden[direction][steps[direction]]
            rows.append(self._softmax.log_probabilities(vectors))
        for logs in zip(*rows, strict=True):
            yield dict(zip(self.directions, logs, strict=True))

    def substitutes(self, tokens: Sequence[str], position: int, n: int = 10) -> Substitutes:
        """Return the likeliest words at a position, at most `n`, independently of its word: see
        `log_probabilities`. Probabilities are normalized over the whole vocabulary. The lists omit
        its marks."""
        if n < 1:
            raise ValueError(f"n is {n}, expected at least 1")
        tokens = checked_sentence(tokens, "the sentence")
        logs = next(self.log_probabilities(tokens, [position]))
        self.signs.add([*tokens[:position], *tokens[position + 1 :]])
        self.signs.warn()
        if len(logs) == 2:
            logs["both"] = self.vocabulary.both_sides(logs)
        lists = {name: self.vocabulary.likeliest(log, n) for name, log in logs.items()}
        is_known = tokens[position] in self.vocabulary
        return Substitutes(lists["forward"], lists.get("backward"), lists.get("both"), is_known)


def _checked_words(sentence: Iterable[str], name: str) -> list[str]:
    """Return the words of a sentence. Raises: DataError, also for padding and for texts."""
    words = checked_sentence(sentence, name)
    for i, word in enumerate(words):
        if not word or len(word.split()) > MAX_PARTS:
            expected = "expected a word: remove padding, split a text into words"
            raise DataError(f"{name}, word {i} is {word[:40]!r}; {expected}")
    return words


def sentences_to_score(sentences: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Yield the words of each sentence. Raises: DataError if one is not a list of words."""
    for number, words in enumerate(checked_sentences(sentences)):
        yield _checked_words(words, f"sentence {number}")


# --- scoring with a stored model ---


def load_scorer(
    model: PathLike | StoredModel,
    vocab_file: PathLike | None = None,
    weight_file: PathLike | None = None,
    softmax_file: PathLike | None = None,
    backend: str | None = None,
) -> Scorer:
    """Load a language model that scores sentences and predicts words.

    Args:
        model, weight_file, softmax_file: a run or an export with its softmax: see
            `bilm.storage.stored_model.open_model`.
        vocab_file: the vocabulary of a run; None for `vocab.txt` in its folder. An export has its
            own words.
        backend: see `bilm.ElmoEmbedder`.
    Raises: OptionsError, WeightsError, DataError.
    """
    stored = open_model(model, weight_file, softmax_file)
    stored.require_softmax()
    words = stored.vocabulary(vocab_file).words
    scorer = Scorer(open_backend(stored, backend, has_softmax=True), words)
    scorer.signs.of_model = stored.profile
    return scorer


def score(
    sentences: Iterable[Sequence[str]], model: PathLike | StoredModel, **files: Any
) -> Iterator[Score]:
    """Yield the log-probabilities of sentences: see `Scorer.score`. `model` and `files` are the
    arguments of `load_scorer`."""
    return load_scorer(model, **files).score(sentences)


def substitutes(tokens: Sequence[str], position: int, n: int = 10, **files: Any) -> Substitutes:
    """Return the likeliest words at a position: see `Scorer.substitutes`. `files` are the arguments
    of `load_scorer`; for several calls, use the `Scorer` that it returns."""
    return load_scorer(**files).substitutes(tokens, position, n)
