"""What linguists measure with a biLM: usages of words, change, surprisal, minimal pairs.

`finding` finds words in texts, `dwug` reads data sets in DWUG's layout, and `collecting` computes
vectors. `usages` contains usages in memory, `usages_file` on the disk. `change` compares two
groupings of them by `measures`, and `answers` states the result in words. `maps` computes clusters
and coordinates, which `pictures` and `page` draw. These modules require the extra analysis;
`settings`, `surprisal` and `minimal_pairs` do not.

May import `embedding`, `scoring` and what they may import.
"""

from bilm.support.imports import lazily

NAMES = {  # by module
    "answers": "in_words",
    "change": "Measured measure measure_change",
    "collecting": "collect_usages write_usages",
    "dwug": "read_dwug",
    "finding": "FoundUsages Query find_usages open_texts parse_query read_queries",
    "maps": "cluster usage_map",
    "minimal_pairs": "Accuracy MinimalPair PairResults PairScore read_pairs score_pairs",
    "page": "write_page",
    "pictures": "draw_change draw_map",
    "settings": "Settings",
    "surprisal": "load_trigrams surprisal_table word_surprisals",
    "usages": "Usage Usages",
    "usages_file": "UsagesFile read_usages",
}
HOMES = {name: f"analysis.{module}" for module, names in NAMES.items() for name in names.split()}
__getattr__, __dir__, __all__ = lazily(__name__, HOMES)
