"""Embedders that all callers in a process share, because each one holds a model in memory.

Objects of other libraries are copied and pickled freely, so they hold the names of a model's files
and a digest of their content. `shared_embedder` returns the embedder of these files.
"""

from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import WeightsError
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.files import expanded
from bilm.support.process import in_forks

MAX_LOADED = 2  # number of models that a process keeps loaded

_loading = Lock()
_of_parents: list[object] = []


class ModelFiles(NamedTuple):
    """The arguments that identify a stored model; see `ElmoEmbedder`."""

    model: str | Path | StoredModel
    weights: str | Path | None = None
    vocab: str | Path | None = None

    def digest(self) -> str:
        """Return the SHA-256 of all files; a process reads each version of a file once. Raises:
        WeightsError, OSError if they are not found."""
        model = open_model(self.model, self.weights)
        vocabulary = expanded(self.vocab) if self.vocab else model.vocabulary_file()
        return model.digest_with(*([Path(vocabulary)] if vocabulary else []))

    def check(self, digest: str, owner: str) -> None:
        """Raise WeightsError if the files are missing, or have another digest than when `owner` was
        created, such as "this vectorizer"; OSError if they cannot be read."""
        present = self.digest()
        if present != digest:
            raise WeightsError(
                f"{self.model}: the files have changed (digest {present[:12]}) since {owner} "
                f"was created ({digest[:12]}); restore the files, or create {owner} again"
            )


def shared_embedder(files: ModelFiles, digest: str, precision: str = "float32") -> ElmoEmbedder:
    """Return the embedder of a model, loaded on first use in this process, and again if its files
    have another digest. The `MAX_LOADED` most recently used models are kept. Raises: as
    `ElmoEmbedder` does."""
    with _loading:
        return _load(files, digest, precision)


@lru_cache(MAX_LOADED)
def _load(files: ModelFiles, digest: str, precision: str) -> ElmoEmbedder:
    return ElmoEmbedder(*files, precision=precision)


@in_forks
def _load_again() -> None:
    """Load models again in a forked process, where an embedder of the parent raises an error."""
    global _loading, _load
    _loading = Lock()  # a thread of the parent may have held it
    _of_parents.append(_load)  # deleting these embedders could hang
    _load = lru_cache(MAX_LOADED)(_load.__wrapped__)
