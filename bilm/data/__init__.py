"""Text -> windows of ids, with NumPy only.

`readers` reads input files of any form, `text` and `shards` read text; `signs` finds text that is
not tokenized, which `tokenization` splits. `alphabets`, `vocabulary` and `model_ids` turn words
into ids, `stream` and `dataset` text into windows of training and evaluation, whose distinct tokens
are in `windows`. `vocabulary_builder` makes vocabularies.
"""

from bilm.support.imports import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Batcher": "data.model_ids",
        "BidirectionalLMDataset": "data.dataset",
        "InvalidNumberOfCharacters": "errors",
        "LMDataset": "data.dataset",
        "TokenBatcher": "data.model_ids",
        "UnicodeCharsVocabulary": "data.vocabulary",
        "Vocabulary": "data.vocabulary",
    },
)
