"""The language models that `peers.py` compares: a 5-gram model, an LSTM and a transformer.

All predict the same words: `<UNK>` for words outside the vocabulary, and `</S>` after the last
word of a sentence; `<S>` is read and not predicted. Arrays of words contain the ids of a
vocabulary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

Windows = Iterator[dict[str, Any]]
Point = dict[str, float]  # processor seconds and perplexity


class KneserNey:
    """Interpolated n-gram model with modified Kneser-Ney smoothing; contexts end at `<S>`.

    An n-gram is identified by the number of its first n - 1 words and by its last word. The lowest
    order is interpolated with the uniform distribution over all words except `<S>`.

    Args:
        sentences: ids of the words of each sentence, without marks.
        bos, eos: ids of `<S>` and `</S>`.
        n_words: vocabulary size.
        order: length of the longest n-grams.
    Reference: Chen and Goodman 1998, "An Empirical Study of Smoothing Techniques for Language
        Modeling".
    """

    def __init__(
        self, sentences: Iterable[np.ndarray], bos: int, eos: int, n_words: int, order: int = 5
    ):
        self.bos, self.eos, self.n_words = bos, eos, n_words
        words, place = self._stream(sentences)
        ids = words.astype(np.int64)  # of the n-gram that ends at each position
        valid = np.ones(len(words), bool)
        self.keys: list[np.ndarray] = []  # of each order above 1, sorted
        grams: list[tuple[np.ndarray, ...]] = [
            (ids, np.arange(n_words), np.bincount(ids, minlength=n_words))
        ]
        for n in range(2, order + 1):
            before = np.concatenate([[0], ids[:-1]])
            valid = place >= n - 1
            keys, first, inverse, raw = np.unique(
                before[valid] * n_words + words[valid],
                return_index=True, return_inverse=True, return_counts=True,
            )  # fmt: skip
            ids = np.full(len(words), -1, np.int64)
            ids[valid] = inverse
            self.keys.append(keys)
            grams.append((ids, np.flatnonzero(valid)[first], raw))
        self.levels = [
            self._level(n, grams, place, order) for n in range(1, order + 1)
        ]  # fmt: skip

    def _stream(self, sentences: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return all words with marks, and the position of each in its sentence."""
        parts = [np.concatenate([[self.bos], s, [self.eos]]).astype(np.int64) for s in sentences]
        return np.concatenate(parts), np.concatenate([np.arange(len(part)) for part in parts])

    def _level(self, n: int, grams: Any, place: np.ndarray, order: int) -> dict[str, np.ndarray]:
        """Return discounted counts of the n-grams, and total and backoff mass of each context."""
        ids, first, raw = grams[n - 1]
        counts = raw
        if n < order:
            followers = grams[n][1]  # a position of each (n + 1)-gram
            counts = np.bincount(ids[followers], minlength=len(raw))
            if n > 1:  # nothing precedes <S>
                counts = np.where(place[first] == n - 1, raw, counts)
        if n == 1:
            counts = np.where(np.arange(len(counts)) == self.bos, 0, counts)
        contexts = np.zeros(len(counts), np.int64) if n == 1 else self.keys[n - 2] // self.n_words
        discounts = _discounts(counts)[np.minimum(counts, 3)]
        n_contexts = 1 if n == 1 else len(grams[n - 2][2])
        total = np.bincount(contexts, counts, n_contexts)
        kept = np.bincount(contexts, discounts, n_contexts)
        safe = np.maximum(total, 1)
        return {
            "share": np.maximum(counts - discounts, 0) / safe[contexts],
            "backoff": np.where(total > 0, kept / safe, 1.0),
        }

    def log_probabilities(self, sentences: Iterable[np.ndarray]) -> np.ndarray:
        """Return the log-probability of each word and each `</S>`, in nats, float64."""
        words, place = self._stream(sentences)
        unigrams = self.levels[0]
        p = unigrams["share"][words] + unigrams["backoff"][0] / (self.n_words - 1)
        ids = words
        for keys, level in zip(self.keys, self.levels[1:], strict=True):
            contexts = np.concatenate([[-1], ids[:-1]])
            contexts = np.where(place > 0, contexts, -1)
            wanted = contexts * self.n_words + words
            at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            found = (contexts >= 0) & (keys[at] == wanted)
            own = np.where(found, level["share"][at], 0.0)
            p = np.where(contexts >= 0, own + level["backoff"][contexts] * p, p)
            ids = np.where(found, at, -1)
        return np.log(p[place > 0])


def _discounts(counts: np.ndarray) -> np.ndarray:
    """Return the discounts of counts 0, 1, 2 and from 3; 0, 0.5, 1, 1.5 for a tiny text."""
    n = [np.count_nonzero(counts == k) for k in range(5)]
    if min(n[1:]) == 0:
        return np.array([0, 0.5, 1, 1.5])
    y = n[1] / (n[1] + 2 * n[2])
    found = [0, *(k - (k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3))]
    return np.clip(found, 0, [0, 1, 2, 3])


def make_lstm(n_words: int, dim: int = 128, n_units: int = 512) -> Any:
    """Return an LSTM after AWD-LSTM: two layers, tied word vectors, dropout of recurrent weights,
    and one dropout mask per row and window (Merity et al. 2018, arXiv:1708.02182)."""
    import torch
    from torch import nn
    from torch.nn.functional import dropout

    class Lstm(nn.Module):
        max_steps = None

        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(n_words, dim)
            nn.init.uniform_(self.words.weight, -0.1, 0.1)
            self.bias = nn.Parameter(torch.zeros(n_words))
            self.layers = nn.ModuleList([nn.LSTM(dim, n_units), nn.LSTM(n_units, dim)])

        def locked(self, x):
            return x * dropout(torch.ones_like(x[:1]), 0.3, self.training)

        def forward(self, ids, state):
            x, after = self.locked(self.words(ids.T)), []
            for k, layer in enumerate(self.layers):
                weights = dict(layer.named_parameters())
                weights["weight_hh_l0"] = dropout(weights["weight_hh_l0"], 0.3, self.training)
                before = () if state is None else (state[k],)
                x, last = torch.func.functional_call(layer, weights, (x, *before))
                x = self.locked(x)
                after.append(tuple(part.detach() for part in last))
            return x.transpose(0, 1), after

    return Lstm()


def make_transformer(n_words: int, dim: int = 128, n_layers: int = 6, n_steps: int = 128) -> Any:
    """Return a GPT-2 of Transformers with tied word vectors. It reads the previous window, too."""
    import torch
    from torch import nn
    from transformers import GPT2Config, GPT2Model

    class Transformer(nn.Module):
        max_steps = n_steps

        def __init__(self):
            super().__init__()
            self.body = GPT2Model(
                GPT2Config(
                    vocab_size=n_words, n_positions=n_steps, n_embd=dim, n_layer=n_layers,
                    n_head=4, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1, use_cache=False,
                    bos_token_id=None, eos_token_id=None,
                )
            )  # fmt: skip
            self.bias = nn.Parameter(torch.zeros(n_words))

        @property
        def words(self):
            return self.body.wte

        def forward(self, ids, state):
            """`state` is the previous window in evaluation, None in training."""
            n_new = ids.shape[1]
            context = ids if state is None else torch.cat([state, ids], 1)[:, -n_steps:]
            hidden = self.body(input_ids=context).last_hidden_state[:, -n_new:]
            return hidden, (None if self.training else ids)

    return Transformer()


def sampled_loss(hidden: Any, targets: Any, model: Any, n_negatives: int, rng: Any) -> Any:
    """Return the mean sampled softmax loss, with shared log-uniform negatives as in bilm."""
    import torch

    n_words = model.bias.shape[0]
    ranks = np.exp(rng.random(n_negatives) * math.log(n_words + 1)).astype(np.int64) - 1
    negatives = torch.from_numpy(np.unique(np.minimum(ranks, n_words - 1)))

    def log_expected(ids):
        p = torch.log((ids + 2.0) / (ids + 1.0)) / math.log(n_words + 1)
        return torch.log(-torch.expm1(n_negatives * torch.log1p(-p)))

    true = (hidden * model.words(targets)).sum(-1) + model.bias[targets] - log_expected(targets)
    sampled = hidden @ model.words(negatives).T + model.bias[negatives] - log_expected(negatives)
    sampled = sampled.masked_fill(targets[:, None] == negatives, -1e30)
    return (torch.logsumexp(torch.cat([true[:, None], sampled], 1), 1) - true).mean()


def torch_perplexity(model: Any, windows: Windows) -> tuple[float, int]:
    """Return perplexity by the full softmax and the number of predictions.

    The state is carried between the windows of a row; a transformer also reads the previous window.
    """
    import torch

    model.train(False)
    total, count, state = 0.0, 0, None
    with torch.no_grad():
        for window in windows:
            mask = torch.from_numpy(window["mask"])
            hidden, state = model(torch.from_numpy(window["token_ids"]).long(), state)
            targets = torch.from_numpy(window["next_token_id"]).long()[mask]
            logits = hidden[mask] @ model.words.weight.T + model.bias
            total += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
            count += len(targets)
    return math.exp(total / count), count


def train_torch(
    model: Any,
    windows: Windows,
    heldout: Callable[[], Windows],
    budget: float,
    n_negatives: int,
    rate: float,
    n_evaluations: int = 8,
) -> list[Point]:
    """Train with Adam and a linear decay until the processor time is used up.

    Args:
        windows: endless training windows.
        heldout: returns the windows of a held-out text for the curve; evaluation is not counted.
        budget: processor seconds of all cores.
        n_negatives: number of sampled negatives; 0 for the full softmax.
        rate: learning rate after 2 % of the time.
    Returns: processor seconds and held-out perplexity at equal distances.
    """
    import torch

    rng, state, points = np.random.default_rng(0), None, []
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    spent, start = 0.0, time.process_time()
    while spent < budget:
        model.train()
        window = next(windows)
        hidden, state = model(torch.from_numpy(window["token_ids"]).long(), state)
        hidden = hidden.reshape(-1, hidden.shape[-1])
        targets = torch.from_numpy(window["next_token_id"]).long().reshape(-1)
        if n_negatives:
            loss = sampled_loss(hidden, targets, model, n_negatives, rng)
        else:
            logits = hidden @ model.words.weight.T + model.bias
            loss = torch.nn.functional.cross_entropy(logits, targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        share = spent / budget
        for group in optimizer.param_groups:
            group["lr"] = rate * min(share / 0.02 + 0.01, 1.0) * (1 - share)
        optimizer.step()
        spent += time.process_time() - start
        if spent >= budget * (len(points) + 1) / n_evaluations:
            points.append({"seconds": spent, "perplexity": torch_perplexity(model, heldout())[0]})
        start = time.process_time()
    return points
