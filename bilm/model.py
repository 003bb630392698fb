"""The names of bilm-tf's module `bilm.model`: see `bilm.compat.bilm_tf`."""

from bilm.compat.bilm_tf import BidirectionalLanguageModel, dump_token_embeddings
from bilm.embedding.corpus import dump_bilm_embeddings

__all__ = ["BidirectionalLanguageModel", "dump_bilm_embeddings", "dump_token_embeddings"]
