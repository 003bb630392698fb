"""bilm: the bidirectional language model behind ELMo on TensorFlow 2 and Keras 3."""

from bilm import keras_import
from bilm.support.imports import lazily

__version__ = "0.2.0"

keras_import.watch()

MODULES = {
    "compat.bilm_tf": "BidirectionalLanguageModel dump_token_embeddings weight_layers",
    "data.dataset": "BidirectionalLMDataset LMDataset",
    "data.model_ids": "Batcher TokenBatcher",
    "data.readers": "text",
    "data.vocabulary": "UnicodeCharsVocabulary Vocabulary",
    "data.vocabulary_builder": "vocab",
    "elmo.layer": "Elmo",
    "embedding.corpus": "dump_bilm_embeddings",
    "embedding.embedder": "ElmoEmbedder",
    "embedding.embedding_file": "read_embeddings read_ids",
    "errors": "BilmError",
    "export.hdf5": "dump_weights",
    "export.saved_model": "export_saved_model",
    "integrations.vectorizer": "ElmoVectorizer",
    "scoring.scorer": "Scorer load_scorer score substitutes",
    "support.process": "quiet",
    "training.finetuning": "finetune",
    "training.run": "train",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES, optional=["ElmoVectorizer"])
