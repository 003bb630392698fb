"""The language models that `peers.py` compares: a 5-gram model, an LSTM and a transformer.

All predict the same words: `<UNK>` for words outside the vocabulary, and `</S>` after the last
word of a sentence; `<S>` is read and not predicted.
"""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Windows = Iterator[dict[str, Any]]
Point = dict[str, float]  # processor seconds and perplexity


def train_ngram(lmplz: str, text: str, arpa: Path, order: int = 5) -> None:
    """Estimate an interpolated n-gram model with modified Kneser-Ney smoothing, the file `arpa`, by
    KenLM's `lmplz`. `text`: a sentence per line, without sentence marks."""
    command = [lmplz, "-o", str(order), "--discount_fallback", "-S", "50%", "-T", arpa.parent]
    with open(arpa, "wb") as file:
        subprocess.run(command, input=text.encode(), stdout=file, check=True)


def ngram_log_probabilities(arpa: Path, sentences: Iterable[str]) -> np.ndarray:
    """Return the natural log-probability of each word and each `</S>`, float64."""
    import kenlm

    model = kenlm.Model(str(arpa))
    found = [score for text in sentences for score, _, _ in model.full_scores(text)]
    return np.log(10) * np.array(found)


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
            # With smaller inputs to the first layer, it predicts unigram frequencies for long.
            nn.init.normal_(self.words.weight, std=dim**-0.5)
            self.bias = nn.Parameter(torch.zeros(n_words))
            self.layers = nn.ModuleList([nn.LSTM(dim, n_units), nn.LSTM(n_units, dim)])

        def locked(self, x):
            return x * dropout(torch.ones_like(x[:1]), 0.3, self.training)

        def forward(self, ids, state):
            x, after = self.locked(self.words(ids.T) * dim**0.5), []
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
    """Return perplexity by the full softmax and the number of predictions. The state is carried
    between the windows of a row; a transformer also reads the previous window."""
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
    precision: str,
    n_evaluations: int = 8,
) -> list[Point]:
    """Train with Adam and a linear decay until `budget` processor seconds of all cores are used up;
    return processor seconds and held-out perplexity at equal distances. `windows` are endless;
    `heldout` returns the windows of a text, whose evaluation is not counted; with 0 `n_negatives`,
    the softmax is computed in full; `rate` is reached after 2 % of the time."""
    import torch

    rng, state, points = np.random.default_rng(0), None, []
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    spent, start = 0.0, time.process_time()
    while spent < budget:
        model.train()
        window = next(windows)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            hidden, state = model(torch.from_numpy(window["token_ids"]).long(), state)
        hidden = hidden.float().reshape(-1, hidden.shape[-1])
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
