"""Usages of words: collected from texts with vectors, compared between texts, drawn as maps. All
modules except `settings` and the commands require the extra analysis.
"""

from bilm.support import lazily

MODULES = {
    "studies.usages.change": "Measured in_words measure measure_change",
    "studies.usages.dwug": "read_dwug",
    "studies.usages.finding": "FoundUsages Query find_usages open_texts parse_query read_queries",
    "studies.usages.maps": "cluster usage_map write_page",
    "studies.usages.neighbours": "Neighbour find_neighbours words_of_text words_of_usages",
    "studies.usages.pictures": "draw_change draw_map draw_run",
    "studies.usages.settings": "Settings",
    "studies.usages.usages": "Usage Usages",
    "studies.usages.usages_file": "UsagesFile collect_usages read_usages write_usages",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
