"""flair's `ELMoEmbeddings` without AllenNLP; programs change the import only.

Importing this module registers the class, so that flair loads taggers that contain it, and selects
the PyTorch backend of Keras, unless Keras has been imported or KERAS_BACKEND is set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bilm.embedding.collecting import side_by_side
from bilm.embedding.shared import ModelFiles, shared_embedder
from bilm.errors import require_one_of
from bilm.support.imports import needed
from bilm.support.process import prefer_torch

prefer_torch()

with needed("flair", "bilm.compat.flair"):
    import flair
    import torch
    from flair.data import Sentence
    from flair.embeddings import TokenEmbeddings
    from flair.embeddings.base import register_embeddings

MODES = ("all", "top", "average")
NAMES = {"large": "original_5.5b", "5.5B": "original_5.5b", "portuguese": "pt"}  # flair's -> ours


@register_embeddings
class ELMoEmbeddings(TokenEmbeddings):
    """The vectors of a stored biLM as flair's embeddings of tokens, which are not trained.

    A model is loaded once per process. Saved taggers and copies contain its name and digest only.

    Args:
        model: a name of flair, such as `small`, or any model: see `bilm.ElmoEmbedder`.
        options_file, weight_file: the files of a model, instead of `model`.
        embedding_mode: `all` layers side by side, `top` or `average`.
        digest: expected digest of the files, which saved embeddings contain; None for any.
    Raises: OptionsError for another mode; OptionsError, WeightsError, DataError as
        `bilm.ElmoEmbedder`; WeightsError if the files differ from the digest.

    Example:
        sentence = Sentence("The grass is green .")
        ELMoEmbeddings("small").embed(sentence)
        vectors = [token.embedding for token in sentence]  # 5 tensors, float32 (3 * 2 P,)
    """

    def __init__(
        self,
        model: str | Path = "original",
        options_file: str | Path | None = None,
        weight_file: str | Path | None = None,
        embedding_mode: str = "all",
        digest: str | None = None,
    ):
        super().__init__()
        require_one_of("embedding_mode", embedding_mode, MODES)
        self.model, self.options_file, self.weight_file = model, options_file, weight_file
        self.embedding_mode = embedding_mode
        self.name = f"elmo-{model}-{embedding_mode}"
        self.static_embeddings = True
        self._files = ModelFiles(options_file or NAMES.get(str(model)) or model, weight_file)
        if digest is not None:
            self._files.check(digest, "the saved embeddings")
        self._digest = digest or self._files.digest()

    @property
    def embedding_length(self) -> int:
        """The number of features of a token."""
        embedder = shared_embedder(self._files, self._digest)
        return embedder.selection(self.embedding_mode).n_features

    def _add_embeddings_internal(self, sentences: list[Sentence]) -> list[Sentence]:
        """Set the vectors of all tokens; flair calls this method."""
        embedder = shared_embedder(self._files, self._digest)
        words = [[token.text for token in sentence] for sentence in sentences]
        embedded = embedder.embed_sentences(words, self.embedding_mode)
        for sentence, vectors in zip(sentences, embedded, strict=True):
            rows = torch.tensor(side_by_side(vectors), device=flair.device)
            for token, row in zip(sentence, rows, strict=True):
                token.set_embedding(self.name, row)
        return sentences

    def to_params(self) -> dict[str, Any]:
        """Return the arguments, which flair saves."""
        return {
            "model": str(self.model),
            "options_file": self.options_file and str(self.options_file),
            "weight_file": self.weight_file and str(self.weight_file),
            "embedding_mode": self.embedding_mode,
            "digest": self._digest,
        }

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> ELMoEmbeddings:
        """Create embeddings from the result of `to_params`."""
        return cls(**params)
