"""Measures of language models for linguists: surprisal of words, accuracy on minimal pairs.

`surprisal` computes the bits per word, `minimal_pairs` reads and compares minimal pairs. Imports
`scoring` and what `scoring` may import.
"""

from bilm.support.imports import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Accuracy": "analysis.minimal_pairs",
        "MinimalPair": "analysis.minimal_pairs",
        "PairResults": "analysis.minimal_pairs",
        "PairScore": "analysis.minimal_pairs",
        "Surprisal": "analysis.surprisal",
        "read_pairs": "analysis.minimal_pairs",
        "score_pairs": "analysis.minimal_pairs",
        "word_surprisals": "analysis.surprisal",
    },
)
