"""Text in, windows of ids out: NumPy only.

Files become sentences (`text`, `shards`, `stream`), sentences become ids (`vocabulary`,
`characters`, `batcher`; inside a graph `layers.tensorflow.spelling`), and ids become the windows
that training, evaluation and scoring share (`dataset`, `windows`). `survey` and
`vocabulary_builder` read a corpus before training. `records` reads what is embedded, `tables` and
FASTA too, by `tokenizers` if asked. `alphabet` is how a stored model spells. Imports errors, files
and what reads options.
"""

from bilm.exports import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Batcher": "data.batcher",
        "BidirectionalLMDataset": "data.bidirectional",
        "InvalidNumberOfCharacters": "errors",
        "LMDataset": "data.dataset",
        "TokenBatcher": "data.batcher",
        "UnicodeCharsVocabulary": "data.vocabulary",
        "Vocabulary": "data.vocabulary",
    },
)
