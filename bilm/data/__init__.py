"""Text -> windows of ids, with NumPy only.

`readers` reads input files of any form, `text` and `shards` read text, `signs` detects text that is
not a tokenized sentence per line. `tokenization` splits text and checks sentences. `vocabulary`
turns words into ids; `stream`, `dataset` and `windows` turn ids into the windows of training,
evaluation and scoring. `survey` and `vocabulary_builder` read a corpus before training. Imports
`errors`, `support` and `options`.
"""

from bilm.support.imports import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Batcher": "data.vocabulary",
        "BidirectionalLMDataset": "data.dataset",
        "InvalidNumberOfCharacters": "errors",
        "LMDataset": "data.dataset",
        "TokenBatcher": "data.vocabulary",
        "UnicodeCharsVocabulary": "data.vocabulary",
        "Vocabulary": "data.vocabulary",
    },
)
