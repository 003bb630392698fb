"""Models whose matrices are stored in eight bits, as bilm 0.1.0 exported them."""

import json
from pathlib import Path

from bilm.layers.int8_weights import quantized
from bilm.options.model_options import EXPORT_ID
from bilm.storage.hdf5 import SCALES, VALUES, save_hdf5
from bilm.storage.names import stored_values
from bilm.storage.stored_model import open_model

MATRICES = ("/W_0", "/W_P_0", "/W_carry", "/W_transform", "/W_proj")


def write_int8(model, folder: Path) -> tuple[Path, Path]:
    """Write a model with its matrices in eight bits; return its weights and options."""
    stored, values = open_model(model), {}
    for name, value in stored_values(stored.build()).items():
        if name.endswith(MATRICES):
            values[name + VALUES], values[name + SCALES] = quantized(value)
        else:
            values[name] = value
    weights, options = folder / "weights_int8.hdf5", folder / "options.json"
    save_hdf5(weights, values)
    kept = stored.options.for_export()
    kept.pop(EXPORT_ID, None)  # the weights have no id
    options.write_text(json.dumps(kept))
    return weights, options
