"""`Embedder` of ELMoForManyLangs, with its numbers; programs change the import only."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from absl import logging

from bilm.data.tokenization import checked_sentences
from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import require_one_of
from bilm.storage.stored_model import StoredModel


class Embedder:
    """A stored biLM with the methods of the class of this name in ELMoForManyLangs.

    Args:
        model_dir, batch_size: a model: see `open_model`; and a number that is ignored.
        backend: see `bilm.ElmoEmbedder`; `numpy` requires neither Keras nor TensorFlow.
    Raises: OptionsError, WeightsError, DataError.

    Example:
        vectors = Embedder("144").sents2elmo([["Hello", "world"], ["Bye"]])  # (2, 2 P), (1, 2 P)
    """

    def __init__(
        self, model_dir: str | Path | StoredModel, batch_size: int = 64, backend: str | None = None
    ):
        self.model_dir, self.batch_size = model_dir, batch_size
        self._embedder = ElmoEmbedder(model_dir, backend=backend)
        n_layers, dim = self._embedder.n_layers, self._embedder.dim
        logging.info("%s: loaded, %d layers of %d", model_dir, n_layers, dim)

    def sents2elmo(
        self, sents: Iterable[Sequence[str]], output_layer: int = -1
    ) -> list[np.ndarray]:
        """Return the vectors of each sentence, float32 (T, 2 P). `output_layer`: number of a layer,
        0 for the token vectors; -1 for their mean; -2 for all, (layers, T, 2 P). Raises:
        OptionsError for another layer; DataError for other sentences."""
        require_one_of("output_layer", output_layer, range(-2, self._embedder.n_layers))
        sentences = checked_sentences(sents)
        if output_layer < 0:
            return self._embedder.embed_batch(sentences, "all" if output_layer == -2 else "average")
        return [layers[0] for layers in self._embedder.embed_batch(sentences, [output_layer])]
