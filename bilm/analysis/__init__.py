"""What linguists measure with a biLM: usages of words, surprisal, accuracy on minimal pairs.

`queries` reads lists of words, `collecting` finds their usages in texts and computes vectors,
`usages` defines the table of usages, `dwug` reads and writes data sets in DWUG's layout. `change`
measures the difference between groupings, with `clusters`, `baselines` and `gold`; `change_plot`
draws it. `maps` draws usages, `page` writes them as HTML, `pictures` is what all
pictures share.
`surprisal` computes the bits per word, `minimal_pairs` reads and compares minimal pairs. Imports
`embedding`, `scoring` and what they may import.
"""

from bilm.support.imports import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Accuracy": "analysis.minimal_pairs",
        "Correlation": "analysis.change",
        "Found": "analysis.collecting",
        "Measured": "analysis.change",
        "MinimalPair": "analysis.minimal_pairs",
        "PairResults": "analysis.minimal_pairs",
        "PairScore": "analysis.minimal_pairs",
        "Query": "analysis.queries",
        "Settings": "analysis.change",
        "Surprisal": "analysis.surprisal",
        "Usage": "analysis.usages",
        "Usages": "analysis.usages",
        "UsagesFile": "analysis.usages",
        "cluster": "analysis.clusters",
        "collect_usages": "analysis.collecting",
        "correlations": "analysis.change",
        "draw_change": "analysis.change_plot",
        "draw_map": "analysis.maps",
        "find_usages": "analysis.collecting",
        "measure": "analysis.change",
        "measure_change": "analysis.change",
        "open_texts": "analysis.collecting",
        "parse_query": "analysis.queries",
        "ppmi_distances": "analysis.baselines",
        "read_dwug": "analysis.dwug",
        "read_gold": "analysis.gold",
        "read_pairs": "analysis.minimal_pairs",
        "read_queries": "analysis.queries",
        "read_usages": "analysis.usages",
        "score_pairs": "analysis.minimal_pairs",
        "sgns_distances": "analysis.baselines",
        "usage_map": "analysis.maps",
        "word_surprisals": "analysis.surprisal",
        "write_dwug": "analysis.dwug",
        "write_page": "analysis.page",
        "write_usages": "analysis.collecting",
    },
)
