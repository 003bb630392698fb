"""bilm: the bidirectional language model behind ELMo on TensorFlow 2 and Keras 3."""

import importlib

__version__ = "0.1.0"

# Names are imported when first used: reading a vocabulary does not wait for TensorFlow.
_HOME = {
    "Batcher": "batcher",
    "BidirectionalLMDataset": "dataset",
    "BidirectionalLanguageModel": "pretrained",
    "BilmError": "errors",
    "Elmo": "elmo",
    "ElmoEmbedder": "embedding",
    "LMDataset": "dataset",
    "Scorer": "scoring",
    "TokenBatcher": "batcher",
    "UnicodeCharsVocabulary": "vocabulary",
    "Vocabulary": "vocabulary",
    "dump_bilm_embeddings": "corpus",
    "dump_token_embeddings": "token_cache",
    "dump_weights": "export",
    "export_saved_model": "saved_model",
    "load_scorer": "scoring",
    "quiet": "process",
    "read_embeddings": "embedding_file",
    "score": "scoring",
    "substitutes": "scoring",
    "weight_layers": "weighting",
}
__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name in _HOME:
        return getattr(importlib.import_module(f"bilm.{_HOME[name]}"), name)
    raise AttributeError(f"module 'bilm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
