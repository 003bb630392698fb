"""`open_model`, which opens a stored biLM as a `StoredModel`."""

import os
from pathlib import Path

from bilm.errors import OptionsError
from bilm.storage.finding.locate import locate
from bilm.storage.formats.base import StoredModel

__all__ = ["StoredModel", "open_model"]


def open_model(
    source: str | Path | StoredModel,
    weights: str | Path | None = None,
    softmax: str | Path | None = None,
) -> StoredModel:
    """Open a stored model; a `StoredModel` is returned unchanged.

    Args:
        source, weights: see `bilm.storage.finding.locate.locate`.
        softmax: HDF5 with `softmax/W`, `softmax/b` and `vocabulary`; None for
            `<stem>_softmax.hdf5` beside the weights of an export.
    Raises: WeightsError as `locate` does; OptionsError if `softmax` is given for a model that does
        not use one, or if `weights` or `softmax` is given with a `StoredModel`.
    """
    if isinstance(source, StoredModel):
        if weights is not None or softmax is not None:
            raise OptionsError(
                f"{source}: is already open; pass weights and softmax to the call of open_model "
                "that opens it"
            )
        return source
    model = locate(source, weights)
    model.arguments = [os.fspath(path) for path in (source, weights) if path is not None]
    if softmax is not None:
        model.use_softmax(Path(softmax).expanduser())
    return model
