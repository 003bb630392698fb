"""Gaps of a text, and the memory of the training text, which predicts words of similar contexts.
`bilm score`, `test` and `surprisal` read a memory by the entry point `bilm.second_models`.
"""

from bilm.support import lazily

MODULES = {
    "studies.gaps.filling": "Candidate Filler Gap",
    "studies.gaps.fitting": "build_memory",
    "studies.gaps.gap_marks": "MASK marks pattern unread_marks",
    "studies.gaps.memory": "Memory",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
