"""Measures of change without a biLM, for comparison: counts and skip-gram vectors.

ppmi   cosine distance of a word's rows of positive pointwise mutual information with context
       words, after Hamilton et al. 2016, arXiv:1605.09096
sgns   cosine distance of skip-gram vectors (gensim; Mikolov et al. 2013, arXiv:1310.4546) after
       orthogonal Procrustes alignment of the two spaces; Hamilton et al. 2016
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from bilm.support.imports import optional
from bilm.support.progress import progress

BASELINES = ("ppmi", "sgns")
WINDOW = 5  # words to each side
MIN_COUNT = 5  # occurrences of a context word
SMOOTHING = 0.75  # exponent of the frequencies of context words; Levy et al. 2015
DIM, EPOCHS = 100, 5  # of skip-gram vectors

Sentences = Callable[[], Iterable[Sequence[str]]]


def ppmi_distances(
    first: Sentences, second: Sentences, targets: Collection[str]
) -> dict[str, float]:
    """Return the distance of each target between two texts; nan if it is missing in one.

    Context words are those that occur at least `MIN_COUNT` times in both texts.

    Args:
        first, second: functions that return the sentences of a text, each with its targets
            replaced by their names.
        targets: names of the words.
    """
    texts = [_Counts(sentences(), targets) for sentences in (first, second)]
    contexts = sorted(
        word
        for word, n in texts[0].words.items()
        if min(n, texts[1].words[word]) >= MIN_COUNT and word not in targets
    )
    a, b = ({t: text.ppmi(t, contexts) for t in targets} for text in texts)
    return {target: _cosine_distance(a[target], b[target]) for target in targets}


class _Counts:
    """Frequencies of words, and of the words near each target."""

    def __init__(self, sentences: Iterable[Sequence[str]], targets: Collection[str]):
        self.words: Counter[str] = Counter()
        self.near: dict[str, Counter[str]] = {target: Counter() for target in targets}
        for words in sentences:
            self.words.update(words)
            for place, word in enumerate(words):
                if word in self.near:
                    before = words[max(0, place - WINDOW) : place]
                    self.near[word].update(before)
                    self.near[word].update(words[place + 1 : place + 1 + WINDOW])

    def ppmi(self, target: str, contexts: Sequence[str]) -> np.ndarray:
        """Return max(0, log p(c | target) / p(c)) for each context word c, float (C,)."""
        near = np.array([self.near[target][word] for word in contexts], float)
        shares = np.array([self.words[word] for word in contexts], float) ** SMOOTHING
        if near.sum() == 0:
            return near
        with np.errstate(divide="ignore"):
            logs = np.log(near / near.sum()) - np.log(shares / shares.sum())
        return np.maximum(logs, 0)


def sgns_distances(
    first: Sentences, second: Sentences, targets: Collection[str], seed: int = 0
) -> dict[str, float]:
    """Return the distance of each target between two texts; nan if it is missing in one.

    See `ppmi_distances` for the arguments. Both spaces are normalized and centred before they are
    aligned by their common words.
    """
    word2vec = optional("gensim.models", "analysis", "the baseline sgns").Word2Vec
    linalg = optional("scipy.linalg", "analysis", "the baseline sgns")
    nan = float("nan")
    for sentences in (first, second):
        counts = Counter(word for words in sentences() for word in words)
        if not any(n >= MIN_COUNT for n in counts.values()):
            return dict.fromkeys(targets, nan)  # gensim refuses a text without frequent words
    with progress("training skip-gram vectors"):
        models = [
        word2vec(
            [list(words) for words in sentences()], vector_size=DIM, window=WINDOW, sg=1,
            negative=5, min_count=MIN_COUNT, epochs=EPOCHS, seed=seed + 1, workers=1,
        ).wv
        for sentences in (first, second)
        ]  # fmt: skip
    common = [word for word in models[0].index_to_key if word in models[1]]
    if not common:
        return dict.fromkeys(targets, nan)
    spaces = []
    for model in models:
        space = model[common]
        space = space / np.linalg.norm(space, axis=1, keepdims=True)
        spaces.append(space - space.mean(axis=0))
    rotation, _ = linalg.orthogonal_procrustes(*spaces)
    rows = {word: k for k, word in enumerate(common)}
    return {
        target: _cosine_distance(spaces[0][rows[target]] @ rotation, spaces[1][rows[target]])
        if target in rows
        else nan
        for target in targets
    }


def _cosine_distance(a: np.ndarray, b: np.ndarray) -> float:
    norm = np.linalg.norm(a) * np.linalg.norm(b)
    return float(1 - a @ b / norm) if norm > 0 else float("nan")


def named(forms: Mapping[str, str], sentences: Iterable[Sequence[str]]) -> Iterable[list[str]]:
    """Yield sentences with the forms of targets replaced by the targets' names."""
    return ([forms.get(word, word) for word in words] for words in sentences)
