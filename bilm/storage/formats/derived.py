"""Options from the shapes of stored tensors, for formats whose files contain none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bilm.errors import OptionsError, WeightsError
from bilm.options import schema
from bilm.options.model_options import ModelOptions
from bilm.options.schema import MAX_LAYERS
from bilm.tensors import CELL, row_of


class StoredShapes(NamedTuple):
    """Shapes of stored tensors.

    Fields:
        source: the file of the tensors, for messages.
        by_name: shape of each tensor, without padding, by its name in `bilm.tensors`.
    """

    source: Path
    by_name: Mapping[str, tuple[int, ...]]

    def sizes(self, name: str) -> dict[str | int, int]:
        """Return the length of each axis of a tensor, by the axes that `bilm.tensors` declares.

        Raises: WeightsError if the tensor is missing, is empty or has another number of axes.
        """
        axes = row_of(name).axes
        shape = self.by_name.get(name)
        if shape is None:
            raise WeightsError(f"{self.source}: {name} is missing")
        if len(shape) != len(axes) or not all(shape):
            declared = ", ".join(map(str, axes))
            raise WeightsError(
                f"{self.source}: {name} has shape {shape}, expected lengths of ({declared})"
            )
        return dict(zip(axes, shape, strict=True))

    def numbered(self, template: str) -> Iterator[str]:
        """Yield the names of a template with `{i}` 0, 1, ... up to the first missing tensor, or one
        more than options may have."""
        for i in range(MAX_LAYERS + 1):
            name = template.format(i=i)
            if name not in self.by_name:
                return
            yield name


def derived_options(
    shapes: StoredShapes, char_cnn: Mapping[str, Any], lstm: Mapping[str, Any]
) -> ModelOptions:
    """Return the options of a model that reads characters.

    Args:
        shapes: determine all sizes.
        char_cnn, lstm: the other options of these sections, such as the activation.
    Raises: WeightsError if the shapes are not those of an ELMo.
    """
    characters = shapes.sizes("char_embed")
    filters = [shapes.sizes(name) for name in shapes.numbered("CNN/W_cnn_{i}")]
    n_highway = len(list(shapes.numbered("CNN_high_{i}/W_carry")))

    # The first cell of the forward direction; without a projection, its states have width D.
    cells = CELL.replace("{k}", "0")
    dim = shapes.sizes(f"{cells}/B".format(i=0))["4 D"] // 4
    projection = f"{cells}/W_P_0".format(i=0)
    projection_dim = shapes.sizes(projection)["P"] if projection in shapes.by_name else dim
    n_layers = len(list(shapes.numbered(f"{cells}/W_0")))

    values = {
        "bidirectional": any(name.startswith("RNN_1/") for name in shapes.by_name),
        "char_cnn": {
            "embedding": {"dim": characters["E"]},
            "filters": [[sizes["width"], sizes["filters"]] for sizes in filters],
            "n_characters": characters["characters"] + 1,  # with the padding row, as in an export
            "n_highway": n_highway,
            **char_cnn,
        },
        "lstm": {"dim": dim, "projection_dim": projection_dim, "n_layers": n_layers, **lstm},
    }
    try:
        return schema.read(ModelOptions, values, strict=False)
    except OptionsError as error:
        raise WeightsError(
            f"{shapes.source}: the shapes of its tensors do not fit an ELMo ({error})"
        ) from None
