"""Options from the shapes of stored tensors, for formats whose files contain none."""

from collections.abc import Container, Mapping
from itertools import count, takewhile
from typing import Any

from bilm.errors import OptionsError, WeightsError
from bilm.options.model_options import ModelOptions
from bilm.storage.stored_tensors import Tensors
from bilm.tensors import CELL


def derived_options(
    tensors: Tensors, char_cnn: Mapping[str, Any], lstm: Mapping[str, Any]
) -> ModelOptions:
    """Return the options of a model that reads characters: sizes from the shapes of its tensors,
    and others of `char_cnn` and `lstm`. Raises: WeightsError if an ELMo cannot have the shapes."""
    characters = tensors.axis_lengths("char_embed")
    filters = [tensors.axis_lengths(name) for name in numbered("CNN/W_cnn_{i}", tensors)]
    n_highway = len(numbered("CNN_high_{i}/W_carry", tensors))

    # The first cell of the forward direction; without a projection, its states have width D.
    cell = CELL.format(k=0, i=0)
    dim = tensors.axis_lengths(f"{cell}/B")["4 D"] // 4
    projection_dim = dim
    if f"{cell}/W_P_0" in tensors:
        projection_dim = tensors.axis_lengths(f"{cell}/W_P_0")["P"]
    n_layers = len(numbered(CELL.format(k=0, i="{i}") + "/W_0", tensors))

    values = {
        "bidirectional": any(name.startswith("RNN_1/") for name in tensors),
        "char_cnn": {
            "embedding": {"dim": characters["E"]},
            "filters": [[lengths["width"], lengths["filters"]] for lengths in filters],
            "n_characters": characters["characters"] + 1,  # with the padding row, as in an export
            "n_highway": n_highway,
            **char_cnn,
        },
        "lstm": {"dim": dim, "projection_dim": projection_dim, "n_layers": n_layers, **lstm},
    }
    try:
        return ModelOptions.from_dict(values)
    except OptionsError as error:
        raise WeightsError(
            f"{tensors.source}: the shapes of its tensors do not fit an ELMo ({error})"
        ) from None


def numbered(template: str, names: Container[str]) -> list[str]:
    """Return the names of a template with `{i}` 0, 1, ... up to the first one that is missing."""
    candidates = (template.replace("{i}", str(i)) for i in count())
    return list(takewhile(names.__contains__, candidates))
