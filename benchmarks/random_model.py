"""A stored model of a given size with random weights, where only the size matters."""

from pathlib import Path

from bilm.language_model import BiLM
from bilm.options import load_run_options, write_options
from bilm.storage import names as weights


def write(name: str, folder: Path) -> tuple[Path, Path]:
    """Write options.json and weights.hdf5 for packaged options; return the two paths."""
    options = load_run_options(name).model
    model = BiLM(options.replace(bidirectional=True), padding=False)
    model.build()
    options_file, weight_file = folder / "options.json", folder / "weights.hdf5"
    write_options(options_file, options.for_export())
    weights.save_hdf5(weight_file, weights.stored_values(model))
    return options_file, weight_file
