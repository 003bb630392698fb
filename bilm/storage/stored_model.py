"""`open_model`, which opens a stored biLM as a `StoredModel`."""

import os
from pathlib import Path

from bilm.errors import OptionsError, WeightsError
from bilm.storage.finding.locate import model_of, model_of_two
from bilm.storage.formats.base import StoredModel

__all__ = ["StoredModel", "open_model"]


def open_model(
    source: str | Path | StoredModel,
    weights: str | Path | None = None,
    softmax: str | Path | None = None,
) -> StoredModel:
    """Open a stored model; download or unpack its files if they are not in the cache.

    An existing path takes precedence over a name. The model is at the top level of a folder or
    archive, or in a single folder inside it, at most three folders deep.

    Args:
        source: a folder, an archive or its URL, or the name of a packaged model or of one of
            `bilm.storage.finding.registry`; with `weights`, the options, their URL or a folder. A
            `StoredModel` is returned unchanged.
        weights: the HDF5 file, its name in that folder, or its URL; or the index file of a
            checkpoint; or a folder, archive or `weights.th` of AllenNLP.
        softmax: HDF5 with `softmax/W`, `softmax/b` and `vocabulary`; None for
            `<stem>_softmax.hdf5` beside the weights of an export.
    Raises: WeightsError if the model does not exist, cannot be downloaded, or has no name;
        OptionsError if `softmax` is given for a model that does not use one, or if `weights` or
        `softmax` is given with a `StoredModel`.
    """
    if isinstance(source, StoredModel):
        if weights is not None or softmax is not None:
            raise OptionsError(
                f"{source}: is already open; pass weights and softmax to the call of open_model "
                "that opens it"
            )
        return source
    arguments = [os.fspath(path) for path in (source, weights) if path is not None]
    if "" in arguments:  # an empty path would be the current folder
        raise WeightsError("found an empty string; expected the path, URL or name of a model")
    paths = list(map(os.path.expanduser, arguments))
    model = model_of(*paths) if weights is None else model_of_two(*paths)
    model.arguments = arguments
    if softmax is not None:
        model.use_softmax(Path(softmax).expanduser())
    return model
