"""What linguists measure with a biLM: usages of words, surprisal, accuracy on minimal pairs.

`collecting` finds usages and computes vectors, `usages` defines their table, `dwug` reads data sets
in DWUG's layout. `change` measures differences. `maps` and `pictures` draw usages and change.
"""

from bilm.support.imports import lazily

NAMES = {  # by module
    "change": "Measured Settings measure measure_change",
    "collecting": "Found Query collect_usages find_usages open_texts parse_query read_queries "
    "write_usages",
    "dwug": "read_dwug",
    "maps": "cluster draw_map usage_map write_page",
    "minimal_pairs": "Accuracy MinimalPair PairResults PairScore read_pairs score_pairs",
    "pictures": "draw_change",
    "surprisal": "Surprisal surprisal_table word_surprisals",
    "usages": "Usage Usages UsagesFile read_usages",
}
HOMES = {name: f"analysis.{module}" for module, own in NAMES.items() for name in own.split()}
__getattr__, __dir__, __all__ = lazily(__name__, HOMES)
