"""bilm: the bidirectional language model behind ELMo on TensorFlow 2 and Keras 3."""

from typing import Any

from bilm.exports import lazily

__version__ = "0.1.0"

_get, __dir__, __all__ = lazily(
    __name__,
    {
        "Batcher": "data.batcher",
        "BidirectionalLMDataset": "data.bidirectional",
        "BidirectionalLanguageModel": "model",
        "BilmError": "errors",
        "Elmo": "elmo",
        "ElmoEmbedder": "embedding.embedder",
        "LMDataset": "data.dataset",
        "Scorer": "scoring",
        "TokenBatcher": "data.batcher",
        "TrainingRun": "training.run",
        "UnicodeCharsVocabulary": "data.vocabulary",
        "Vocabulary": "data.vocabulary",
        "dump_bilm_embeddings": "embedding.corpus",
        "dump_token_embeddings": "embedding.token_cache",
        "dump_weights": "training.export",
        "export_saved_model": "saved_model",
        "load_scorer": "ask",
        "quiet": "process",
        "read_embeddings": "embedding.embedding_file",
        "score": "ask",
        "substitutes": "ask",
        "weight_layers": "weighting",
    },
    optional={"ElmoVectorizer": "integrations.vectorizer"},
)


def __getattr__(name: str) -> Any:
    value = _get(name)
    from bilm.installation import warn_of_conflict  # not before there is something to use

    warn_of_conflict()
    return value
