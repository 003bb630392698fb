"""Embedders that all callers in a process share, because each one holds a model in memory.

Objects of other libraries are copied and pickled freely, so they hold the names of a model's files
and a digest of their content. `shared_embedder` returns the embedder of these files.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import WeightsError
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.files import expanded

MAX_LOADED = 2  # number of models that a process keeps loaded
DIGITS = 12  # hexadecimal digits of a digest in an error

_loading = Lock()


class ModelFiles(NamedTuple):
    """The arguments that identify a stored model; see `ElmoEmbedder`."""

    model: str | Path | StoredModel
    weights: str | Path | None = None
    vocab: str | Path | None = None

    def open(self) -> StoredModel:
        """Open the model. Raises: WeightsError, OSError if its files are not found."""
        return open_model(self.model, self.weights)

    def digest(self) -> str:
        """Return the SHA-256 of the content of all files. A process reads each version of a file
        once."""
        model = self.open()
        vocabulary = expanded(self.vocab) if self.vocab else model.vocabulary_file()
        return model.digest_with(*([Path(vocabulary)] if vocabulary else []))

    def check(self, digest: str, owner: str) -> None:
        """Check that the files have not changed since an object was created.

        Args:
            digest: the digest at that time.
            owner: description of the object, such as `this vectorizer`.
        Raises: WeightsError if they have changed or are missing; OSError if they cannot be read.
        """
        present = self.digest()
        if present != digest:
            raise WeightsError(
                f"{self.model}: the files have changed (digest {present[:DIGITS]}) since {owner} "
                f"was created ({digest[:DIGITS]}); restore the files, or create {owner} again"
            )


def shared_embedder(files: ModelFiles, digest: str, precision: str = "float32") -> ElmoEmbedder:
    """Return the embedder of a model, loaded on first use in this process.

    The `MAX_LOADED` most recently used models are kept. Threads may share an embedder.

    Args:
        files: the model.
        digest: result of `files.digest`; a model whose files have changed is loaded again.
        precision: see `ElmoEmbedder`.
    Raises: OptionsError, WeightsError, DataError, as `ElmoEmbedder` does.
    """
    with _loading:
        return _load(files, digest, precision)


@lru_cache(MAX_LOADED)
def _load(files: ModelFiles, digest: str, precision: str) -> ElmoEmbedder:
    return ElmoEmbedder(files.open(), None, files.vocab, precision=precision)
