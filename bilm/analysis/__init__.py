"""What linguists measure with a biLM: usages of words, surprisal, accuracy on minimal pairs.

`queries` reads lists of words, `collecting` finds their usages in texts and computes vectors,
`usages` defines the table of usages, `dwug` reads and writes data sets in DWUG's layout.
`surprisal` computes the bits per word, `minimal_pairs` reads and compares minimal pairs. Imports
`embedding`, `scoring` and what they may import.
"""

from bilm.support.imports import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Accuracy": "analysis.minimal_pairs",
        "Found": "analysis.collecting",
        "MinimalPair": "analysis.minimal_pairs",
        "PairResults": "analysis.minimal_pairs",
        "PairScore": "analysis.minimal_pairs",
        "Query": "analysis.queries",
        "Surprisal": "analysis.surprisal",
        "Usage": "analysis.usages",
        "Usages": "analysis.usages",
        "UsagesFile": "analysis.usages",
        "collect_usages": "analysis.collecting",
        "find_usages": "analysis.collecting",
        "open_texts": "analysis.collecting",
        "parse_query": "analysis.queries",
        "read_dwug": "analysis.dwug",
        "read_pairs": "analysis.minimal_pairs",
        "read_queries": "analysis.queries",
        "read_usages": "analysis.usages",
        "score_pairs": "analysis.minimal_pairs",
        "word_surprisals": "analysis.surprisal",
        "write_dwug": "analysis.dwug",
        "write_usages": "analysis.collecting",
    },
)
