"""Log-probabilities of sentences, perplexity, and likely words at a position.

`scorer` computes `scores` of sentences with a stored language model, and the words that it
predicts. `perplexity` summarizes them, also mixed with those of a second model, which `studies`
contains: the memory of a training text. `verdict` compares it with that of `ngrams`.
"""

from bilm.support.imports import lazily

MODULES = {
    "scoring.ngrams": "Ngrams",
    "scoring.perplexity": "Perplexity SecondModel TextLosses",
    "scoring.scorer": "PredictedWords Scorer sentences_to_score",
    "scoring.scores": "Logs Predicted Score",
    "scoring.verdict": "Measurement",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
