"""What linguists measure with a biLM: usages of words, surprisal, accuracy on minimal pairs.

`collecting` finds the usages of words in texts and computes vectors, `usages` defines the table of
usages, `dwug` reads data sets in DWUG's layout. `change` measures the difference between
groupings. `maps` draws usages, also as an HTML page, `pictures` draws changed words and the curves
of a training run. `minimal_pairs` reads and compares minimal pairs. Imports `embedding`, `scoring`
and what they may import.
"""

from bilm.support.imports import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Accuracy": "analysis.minimal_pairs",
        "Found": "analysis.collecting",
        "Measured": "analysis.change",
        "MinimalPair": "analysis.minimal_pairs",
        "PairResults": "analysis.minimal_pairs",
        "PairScore": "analysis.minimal_pairs",
        "Query": "analysis.collecting",
        "Settings": "analysis.change",
        "Surprisal": "scoring.surprisal",
        "Usage": "analysis.usages",
        "Usages": "analysis.usages",
        "UsagesFile": "analysis.usages",
        "cluster": "analysis.maps",
        "collect_usages": "analysis.collecting",
        "draw_change": "analysis.pictures",
        "draw_map": "analysis.maps",
        "find_usages": "analysis.collecting",
        "measure": "analysis.change",
        "measure_change": "analysis.change",
        "open_texts": "analysis.collecting",
        "parse_query": "analysis.collecting",
        "read_dwug": "analysis.dwug",
        "read_pairs": "analysis.minimal_pairs",
        "read_queries": "analysis.collecting",
        "read_usages": "analysis.usages",
        "score_pairs": "analysis.minimal_pairs",
        "usage_map": "analysis.maps",
        "word_surprisals": "scoring.surprisal",
        "write_page": "analysis.maps",
        "write_usages": "analysis.collecting",
    },
)
