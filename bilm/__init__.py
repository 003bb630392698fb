"""bilm: the bidirectional language model behind ELMo on TensorFlow 2 and Keras 3."""

from bilm import keras_import
from bilm.support.imports import lazily
from bilm.support.process import choose_backend

__version__ = "0.2.0"

choose_backend()  # before Keras is imported
keras_import.watch()

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Batcher": "data.model_ids",
        "BidirectionalLMDataset": "data.dataset",
        "BidirectionalLanguageModel": "compat.bilm_tf",
        "BilmError": "errors",
        "Elmo": "elmo.layer",
        "ElmoEmbedder": "embedding.embedder",
        "LMDataset": "data.dataset",
        "Scorer": "scoring.scorer",
        "TokenBatcher": "data.model_ids",
        "UnicodeCharsVocabulary": "data.vocabulary",
        "Vocabulary": "data.vocabulary",
        "dump_bilm_embeddings": "embedding.corpus",
        "dump_token_embeddings": "compat.bilm_tf",
        "dump_weights": "export.hdf5",
        "export_saved_model": "export.saved_model",
        "finetune": "training.finetuning",
        "load_scorer": "scoring.scorer",
        "quiet": "support.process",
        "read_embeddings": "embedding.embedding_file",
        "read_ids": "embedding.embedding_file",
        "score": "scoring.scorer",
        "substitutes": "scoring.scorer",
        "train": "training.run",
        "weight_layers": "compat.bilm_tf",
    },
    optional={"ElmoVectorizer": "integrations.vectorizer"},
)
