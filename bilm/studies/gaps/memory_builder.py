"""Makes the memory of a training text."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bilm.errors import DataError
from bilm.scoring import Perplexity, Scorer, TextLosses, sentences_to_score
from bilm.studies.gaps.filling import Filler
from bilm.studies.gaps.fitting import fit_memory, fit_shares
from bilm.studies.gaps.memory import Memory
from bilm.support import Progress


def build_memory(
    scorer: Scorer, text: Iterable[Sequence[str]], heldout: Iterable[Sequence[str]]
) -> tuple[Memory, Perplexity, Perplexity]:
    """Return the memory of a training text, fitted to the held-out sentences that it does not
    contain, and their perplexities with and without it. Raises: DataError for too few words."""
    bar = Progress("scoring held-out text", "sentences")
    scores = list(bar.over(scorer.score(heldout)))
    if not any(score.tokens for score in scores):
        raise DataError("held-out text: found no words, expected at least one sentence")

    memory = fit_memory(sentences_to_score(text), scorer.words, len(scorer.directions))
    bar = Progress("reading held-out text", "sentences", len(scores))
    scored = []
    for score in bar.over(scores):
        scored.append((score, memory.sentence_log_probabilities(score.tokens, score.logs)))

    # Fit to the sentences that the text does not contain
    new = [(score, logs) for score, logs in scored if not memory.contains(score.tokens)]
    if new:
        memory = replace(memory, shares=fit_shares(new))
    exponents = Filler(scorer, memory=memory).fit_exponents([score.tokens for score, _ in new])

    losses = TextLosses(memory)
    for score, logs in scored:
        losses.add(score, logs)
    alone, mixed = losses.perplexities("held-out text")
    assert mixed is not None
    return replace(memory, exponents=exponents), mixed, alone
