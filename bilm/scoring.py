"""A language model to ask: how likely are sentences, and which words could stand in a place."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence

import keras
import numpy as np
from keras import ops

from bilm.data.characters import BOS, EOS, CharacterEncoder
from bilm.data.sentences import checked_sentence
from bilm.data.vocabulary import MARKS, UNK
from bilm.data.windows import (
    KEY_SUFFIX,
    Row,
    Spelled,
    batches,
    distinct_shapes,
    empty_window,
    model_batch,
)
from bilm.errors import DataError
from bilm.language_model import BiLM
from bilm.layers.functional import compiled
from bilm.scores import Score, Substitute, Substitutes

WINDOW_BATCHES = 4  # batches among which sentences are sorted by length
PREDICTED_AT_ONCE = 1 << 24  # log-probabilities of words at places of a sentence


class Scorer:
    """Asks a language model, by its full softmax and each sentence from zero state.

    A word outside the vocabulary counts as `<UNK>` where it is predicted; a model that reads
    characters still reads it by its own.

    Args:
        model: a `BiLM` with its softmax and without padding.
        words: the vocabulary in the order of ids, with the three marks.
        batch_tokens: predictions of a batch at most, padding included, and steps that a longer
            sentence is run over at a time. It bounds memory and changes no result.
    Raises: DataError if the vocabulary is not the model's; ValueError for another model or size.

    Example:
        scorer = bilm.load_scorer("run")
        score = next(scorer.score([["The", "bank", "closed", "."]]))
        scorer.substitutes(["The", "bank", "closed", "."], 1).both  # in place of "bank"
    """

    def __init__(self, model: BiLM, words: Sequence[str], batch_tokens: int = 1024):
        if model.softmax is None or model.padding or batch_tokens < 1:
            raise ValueError(
                "expected a model with softmax and without padding, and batch_tokens of 1 or more"
            )
        self.model, self.words, self.batch_tokens = model, words, batch_tokens
        self._ids = {word: i for i, word in enumerate(words)}  # of equal words the last counts
        if len(words) != model.n_tokens or not self._ids.keys() >= set(MARKS):
            raise DataError(
                f"a vocabulary of {len(words):,} words; expected the model's {model.n_tokens:,}, "
                f"{' '.join(MARKS)} among them"
            )
        proper = [self._ids[w] == i and w not in ("", *MARKS) for i, w in enumerate(words)]
        self._proper = np.flatnonzero(proper)
        char_cnn = model.options.char_cnn
        self._characters = char_cnn and CharacterEncoder(char_cnn.max_characters_per_token)
        batch, *carried = self._signature()
        self._run_losses = compiled(self._losses, [batch, *carried])
        steps = dict.fromkeys(model.directions, keras.KerasTensor((None,), "int32"))
        self._run_predictions = compiled(self._predictions, [batch, steps])

    def score(self, sentences: Iterable[Sequence[str]]) -> Iterator[Score]:
        """Score a stream of sentences, giving results in its order, in bounded memory.

        About `WINDOW_BATCHES * batch_tokens` words are read ahead and sorted by length; what a
        sentence gets does not depend on the others. One without words has the marks predicted.

        Raises: DataError if a sentence is not a list of words.
        """
        window, n_tokens = [], 0
        for number, sentence in enumerate(sentences):
            window.append(checked_sentence(sentence, f"sentence {number}"))
            n_tokens += len(window[-1]) + 1
            if n_tokens >= WINDOW_BATCHES * self.batch_tokens:
                yield from self._score(window)
                window, n_tokens = [], 0
        yield from self._score(window)

    def substitutes(self, tokens: Sequence[str], position: int, n: int = 10) -> Substitutes:
        """Return the `n` most likely words in place of `tokens[position]`, which is not looked at.

        Probabilities are shares of the whole vocabulary, but the marks `<S>`, `</S>` and `<UNK>`
        are left out of the lists.

        Args:
            tokens: a sentence.
            position: from 0.
            n: how many words; all that there are if they are fewer.
        Raises: DataError if `tokens` is not a list of words or has no such position; ValueError
            if `n` is below 1.
        """
        words = checked_sentence(tokens, "the sentence")
        if n < 1:
            raise ValueError(f"n is {n}, expected at least 1")
        logs = next(self.log_probabilities(words, [position]))
        logs = {d: log[self._proper] for d, log in logs.items()}
        if "backward" not in logs:
            return Substitutes(self._best(logs["forward"], n), None, None)
        logs["both"] = logs["forward"] + logs["backward"]
        return Substitutes(**{name: self._best(log, n) for name, log in logs.items()})

    def known(self, word: str) -> str:
        """Return the word that is predicted in a word's place: itself, or `<UNK>`."""
        return word if word in self._ids else UNK

    def log_probabilities(
        self, tokens: Sequence[str], positions: Sequence[int]
    ) -> Iterator[dict[str, np.ndarray]]:
        """Return the log-probability of every word of the vocabulary at places of a sentence.

        Args:
            tokens: a sentence; the words at the places themselves change nothing.
            positions: from 0.
        Returns: for each position a dict with float32 (V,) in nats per direction, by word id.
        Raises: DataError if `tokens` is not a list of words or has no such position.
        """
        words = checked_sentence(tokens, "the sentence")
        positions = [_checked_position(position, len(words)) for position in positions]
        _, batch = next(self._batches([words], 1, len(words) + 1))
        n_positions = max(1, PREDICTED_AT_ONCE // len(self.words))
        for start in range(0, len(positions), n_positions):
            places = np.array(positions[start : start + n_positions], np.int32)
            # What predicts a word depends on the words read before it alone: the rest may stay.
            steps = {"forward": places, "backward": len(words) - 1 - places}
            logs = self._run_predictions(batch, {d: steps[d] for d in self.model.directions})
            logs = {d: ops.convert_to_numpy(log) for d, log in logs.items()}
            yield from ({d: log[i] for d, log in logs.items()} for i in range(len(places)))

    def _score(self, window: list[list[str]]) -> list[Score]:
        scores: list[Score | None] = [None] * len(window)
        lengths = np.array([len(words) + 1 for words in window], np.int64)
        for rows, n_rows in batches(lengths, self.batch_tokens):
            logs = self._run([window[i] for i in rows], n_rows)
            for row, i in enumerate(rows):
                found = {d: log[row, : lengths[i]] for d, log in logs.items()}
                backward = found.get("backward")
                scores[i] = Score(
                    found["forward"].copy(), None if backward is None else backward[::-1].copy()
                )
        return scores

    def _run(self, sentences: list[list[str]], n_rows: int) -> dict[str, np.ndarray]:
        """Run over sentences, the longest first, in `n_rows` rows.

        Returns: for each direction, in the order it reads in, log-probabilities float32 (B, T).
        """
        lengths = np.zeros((n_rows, 1), np.int64)
        lengths[: len(sentences), 0] = [len(words) + 1 for words in sentences]
        n_predictions = int(lengths[0, 0])
        logs = {d: np.empty((n_rows, n_predictions), np.float32) for d in self.model.directions}
        state = self.model.flatten_state(self.model.zero_state(n_rows))
        n_steps = max(self.batch_tokens // n_rows, 1)  # fewer than T in a lone long sentence
        for steps, batch in self._batches(sentences, n_rows, n_steps):
            mask = np.arange(steps.start, steps.stop) < lengths
            losses, state = self._run_losses(batch, mask, state)
            for direction, loss in losses.items():
                logs[direction][:, steps] = -ops.convert_to_numpy(loss)
        return logs

    def _batches(
        self, sentences: list[list[str]], n_rows: int, n_steps: int
    ) -> Iterator[tuple[slice, dict]]:
        """Yield some steps at a time of whole sentences, the longest first, and their batch."""
        n_chars = self._characters and self._characters.max_word_length
        rows = {d: self._rows(sentences, d == "backward") for d in self.model.directions}
        n_predictions = len(sentences[0]) + 1
        for start in range(0, n_predictions, n_steps):
            steps, window = slice(start, min(start + n_steps, n_predictions)), {}
            for direction, own in rows.items():
                part = empty_window(n_rows, steps.stop - start, n_chars)
                for row in own:
                    row.advance(steps.stop - start, part)
                window |= {key + KEY_SUFFIX[direction]: ids for key, ids in part.items()}
            yield steps, model_batch(window, self.model.options)

    def _rows(self, sentences: list[list[str]], reverse: bool) -> list[Row]:
        def encode(words: list[str]) -> tuple[np.ndarray, Spelled | None]:
            words = [BOS, *words, EOS][:: -1 if reverse else 1]
            ids = np.array([self._ids.get(word, self._ids[UNK]) for word in words], np.int32)
            return ids, self._characters and Spelled(self._characters, words)

        return [Row(i, iter([(0, words)]), encode) for i, words in enumerate(sentences)]

    def _outputs(self, batch, mask, state):
        """Return each direction's outputs, layer by layer, and the next state."""
        return self.model.windows(self.model.encode(batch), state, mask)

    def _losses(self, batch, mask, state):
        """Run on from a state: losses float (B, T) a direction, and the next state."""
        outputs, state = self._outputs(batch, mask, self.model.pack_state(state))
        return self.model.losses(outputs, batch["targets"]), self.model.flatten_state(state)

    def _predictions(self, batch, steps):
        """Return all words' log-probabilities at N steps per direction of one row: float (N, V)."""
        outputs, _ = self._outputs(batch, None, self.model.zero_state(1))
        softmax, logs = self.model.softmax, {}
        for direction in self.model.directions:
            hidden = ops.take(outputs[direction][-1][0], steps[direction], axis=0)  # N, P
            logits = ops.matmul(hidden, ops.transpose(softmax.kernel)) + softmax.bias
            logs[direction] = logits - softmax.log_normalizer(hidden)[:, None]
        return logs

    def _best(self, logs: np.ndarray, n: int) -> list[Substitute]:
        order = np.argsort(-logs, kind="stable")[:n]
        return [Substitute(self.words[self._proper[i]], float(logs[i])) for i in order]

    def _signature(self) -> list:
        places = dict.fromkeys(self.model.directions, keras.KerasTensor((None, None), "int32"))
        shapes = distinct_shapes(self.model.options)
        if self._characters:
            distinct = tuple(keras.KerasTensor(shape, "int32") for shape in shapes)
        else:
            distinct = keras.KerasTensor(shapes, "int32")
        state = self.model.flatten_state(self.model.zero_state(0))
        return [
            {
                "distinct": distinct,
                "places": places,
                "targets": dict(places),
            },
            keras.KerasTensor((None, None), "bool"),
            [keras.KerasTensor((None, part.shape[1]), "float32") for part in state],
        ]


def _checked_position(position: int, n_words: int) -> int:
    """Return a place of a sentence. Raises: DataError if it is none, or no integer."""
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
