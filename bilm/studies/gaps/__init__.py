"""Gaps of a text, and the memory of the training text, which predicts words of similar contexts.

`gap_marks` reads the marks of gaps, and `filling` fills them. `remembered_text` compares contexts
with the text of a memory, `memory` computes probabilities and stores them, `fitting` fits the
weights of the comparison, the shares of the mixture with the biLM and the exponents of gap filling,
and `memory_builder` makes a memory with them. The commands are `fill_command` and `memory_command`.
`bilm score`, `test` and `surprisal` read a memory by the entry point `bilm.second_models`.
"""

from bilm.support import lazily

MODULES = {
    "studies.gaps.filling": "Candidate Filler Gap",
    "studies.gaps.gap_marks": "MASK marks pattern unread_marks",
    "studies.gaps.memory": "Memory",
    "studies.gaps.memory_builder": "build_memory",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
