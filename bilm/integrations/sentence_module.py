"""A stored biLM as the first module of a `SentenceTransformer`, pooling included."""

from typing import Any

from bilm.data.tokenization import tokenizer
from bilm.embedding.shared import ModelFiles, shared_embedder
from bilm.support.imports import needed

with needed("sentence-transformers", "bilm.integrations.sentence_module"):
    import torch
    from sentence_transformers.base.modules import InputModule


class ElmoSentences(InputModule):
    """Texts -> one ELMo vector each, that of `ElmoEmbedder.sentence_vectors`, without training.

    Args:
        model: a folder, archive, URL or name; see `bilm.storage.stored_model.open_model`.
        layers, pool, precision: see `ElmoEmbedder`; several layers are concatenated.
        language: language whose spaCy rules split texts; None splits at white space.
        digest: digest of the model's files, which must not have changed; None to compute it.
    """

    config_keys = ["model", "layers", "pool", "language", "precision", "digest"]  # noqa: RUF012

    def __init__(
        self,
        model: str,
        layers: str | list[int] = "average",
        pool: str = "mean",
        language: str | None = None,
        precision: str = "float32",
        digest: str | None = None,
    ):
        super().__init__()
        self.model = model
        self.layers = layers
        self.pool = pool
        self.language = language
        self.precision = precision
        self._files = ModelFiles(model)
        self.digest = digest or self._files.digest()
        self._files.check(self.digest, "this module")
        self.register_buffer("place", torch.empty(0), persistent=False)  # has the module's device

    def preprocess(
        self, inputs: list[str], prompt: str | None = None, **_: object
    ) -> dict[str, Any]:
        """Split texts, each after the prompt, into words."""
        split = tokenizer(self.language)
        return {"words": [split((prompt or "") + text) for text in inputs]}

    def forward(self, features: dict[str, Any], **_: object) -> dict[str, Any]:
        """Add `sentence_embedding`, float32 (n, features)."""
        embedder = shared_embedder(self._files, self.digest, self.precision)
        vectors = embedder.sentence_vectors(features["words"], self.layers, pool=self.pool)
        flat = torch.from_numpy(vectors).flatten(1)  # n, features
        return {**features, "sentence_embedding": flat.to(self.place.device)}

    def get_embedding_dimension(self) -> int:
        """Return the number of features of a text."""
        embedder = shared_embedder(self._files, self.digest, self.precision)
        return embedder.selection(self.layers).n_features

    def save(self, output_path: str, *_: object, **__: object) -> None:
        """Write arguments and digest, without weights; load with `trust_remote_code=True`."""
        self.save_config(output_path)
