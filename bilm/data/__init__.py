"""Text -> windows of ids, with NumPy only.

`readers` reads input files of any form, `text` and `shards` read text, `signs` detects text that is
not a tokenized sentence per line. `tokenization` splits text and checks sentences. `alphabets` and
`vocabulary` turn words into ids of characters and words, `model_ids` makes batches of them for
pretrained models. `stream` and `dataset` make the windows of training and evaluation, `windows`
lists their distinct tokens. `vocabulary_builder` makes vocabulary files. `verdict` compares a model
with `ngrams`.
Imports `errors`, `support` and `options`.
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
