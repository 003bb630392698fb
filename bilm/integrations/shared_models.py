"""Stored models that objects of other libraries name.

Such objects are copied and pickled freely, so they hold the names of a model's files and a digest
of their content. A process loads each model once, and refuses files that are no longer the same.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.token_cache import find_vocabulary
from bilm.errors import WeightsError
from bilm.files import expanded, sha256_of
from bilm.storage.formats.checkpoint import VOCABULARY
from bilm.storage.formats.known import model_files, read_options
from bilm.storage.locate import resolve

MAX_LOADED = 2  # models that a process keeps
SHOWN = 12  # hexadecimal digits of a digest in an error

# By digest and precision; the first was used longest ago.
_loaded: OrderedDict[tuple[str, str], ElmoEmbedder] = OrderedDict()
_loading = Lock()


class ModelFiles(NamedTuple):
    """What names a stored model; see `ElmoEmbedder`."""

    model: str | Path
    weights: str | Path | None = None
    vocab: str | Path | None = None

    def digest(self) -> str:
        """Return the SHA-256 of the content of all files.

        Raises: WeightsError, OSError if they are not found.
        """
        pair = resolve(expanded(self.model), expanded(self.weights))
        vocab = self._vocabulary(*pair)
        files = [*model_files(*pair), *([Path(vocab)] if vocab else [])]
        return hashlib.sha256("".join(map(_file_digest, files)).encode()).hexdigest()

    def _vocabulary(self, options_file: Path, weight_file: Path) -> str | Path | None:
        """Return the vocabulary that is given, or that the model reads from beside its options."""
        if self.vocab or not options_file.with_name(VOCABULARY).is_file():
            return expanded(self.vocab)
        return find_vocabulary(read_options(options_file, weight_file), options_file, None)

    def check(self, digest: str, owner: str) -> None:
        """Check that the files are those that an object was made with.

        Args:
            digest: what `digest` returned then.
            owner: what the object is, such as `this vectorizer`.
        Raises: WeightsError if they are not, or are not found; OSError if they cannot be read.
        """
        found = self.digest()
        if found != digest:
            raise WeightsError(
                f"{self.model}: another model (digest {found[:SHOWN]}) than the one that {owner} "
                f"was made with ({digest[:SHOWN]}); restore its files, or make {owner} anew"
            )


def shared_embedder(files: ModelFiles, precision: str = "float32") -> ElmoEmbedder:
    """Return the embedder of a model, loaded when this process first asks for it.

    The `MAX_LOADED` models asked for last are kept. Threads may share an embedder.

    Args:
        files: the model; equal files are one model, whatever their names.
        precision: see `ElmoEmbedder`.
    Raises: OptionsError, WeightsError, DataError, as `ElmoEmbedder` does.
    """
    with _loading:
        key = files.digest(), precision
        if key not in _loaded:
            _loaded[key] = ElmoEmbedder(*files, precision=precision)
        _loaded.move_to_end(key)
        if len(_loaded) > MAX_LOADED:
            _loaded.popitem(last=False)
        return _loaded[key]


def _file_digest(path: Path) -> str:
    found = os.stat(path)
    return _digest_of(path, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=64)
def _digest_of(path: Path, *version: int) -> str:
    """Return the digest of a file's content, computed once for a version of the file."""
    return sha256_of(path)
