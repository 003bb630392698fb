"""A trained model -> the HDF5 and options files that existing readers of ELMo load."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
from absl import logging

from bilm.errors import OptionsError, WeightsError
from bilm.files import expanded, replacing
from bilm.options import (
    EXPORT_ID,
    N_CHARACTERS_WITH_PADDING,
    ModelOptions,
    load_model_options,
    write_options,
)
from bilm.storage import names as weights
from bilm.storage.checkpoint import OPTIONS, load_run, run_vocabulary
from bilm.storage.checkpoint_folder import checkpoint_paths
from bilm.storage.export_id import export_id, read_export_id
from bilm.storage.formats.bilm_tf import HDF5_SUFFIXES
from bilm.storage.load import load_bilm
from bilm.storage.locate import run_folder
from bilm.training.card import missing_for_allennlp
from bilm.training.run_folder import RunFolder


def dump_weights(
    save_dir: str | Path,
    outfile: str | Path,
    include_softmax: bool = False,
    vocab_file: str | Path | None = None,
) -> list[Path]:
    """Write a run's latest checkpoint as HDF5 with its options, and load them back to compare.

    The files share an id: a kill between them leaves files that are refused together.

    Args:
        save_dir: a run, ours or the TensorFlow 1 reference's: its folder, or what else stands for
            it, see `bilm.storage.locate.resolve`.
        outfile: the HDF5 file, whose name ends in `.hdf5` or `.h5`; or a folder, which gets
            `weights.hdf5`. The options go beside it as `options.json`; where that file is a
            run's, other weights' or from no export, as `<stem>_options.json`.
        include_softmax: also write `<stem>_softmax.hdf5` with `softmax/W` (V, P), `softmax/b` (V,)
            and `vocabulary` (V,), UTF-8 strings.
        vocab_file: the run's vocabulary, for the softmax; None for `vocab.txt` in the folder.
    Returns: the paths written.
    Raises: OptionsError, DataError, WeightsError.
    """
    save_dir, outfile = run_folder(save_dir), _weights_path(Path(expanded(outfile)))
    options_file = _options_path(outfile)
    model = load_run(save_dir)
    RunFolder(save_dir).warn_of_better()
    vocabulary = run_vocabulary(save_dir, model, vocab_file) if include_softmax else None
    _warn_of_readers(model.options)

    values, options = weights.stored_values(model), model.options.for_export()
    bilm_values = {k: v for k, v in values.items() if weights.is_bilm(k)}
    mark = {EXPORT_ID: export_id(options, values)}
    softmax_file = outfile.with_name(f"{outfile.stem}_softmax.hdf5")
    # What does not read back as it was written never gets its name. The options get theirs first:
    # of all three they alone may lack an id, if an older bilm wrote them.
    with ExitStack() as names:
        if vocabulary is not None:
            words = [vocabulary.id_to_word(i) for i in range(vocabulary.size)]
            new_softmax = names.enter_context(replacing(softmax_file))
            weights.save_hdf5(new_softmax, _softmax_values(values, words), mark)
        new_weights = names.enter_context(replacing(outfile))
        new_options = names.enter_context(replacing(options_file))
        weights.save_hdf5(new_weights, bilm_values, mark)
        write_options(new_options, options | mark)
        _compare(bilm_values, new_options, new_weights)
    return [outfile, options_file, *([softmax_file] if vocabulary else [])]


def _softmax_values(values: dict[str, np.ndarray], words: list[str]) -> dict[str, np.ndarray]:
    kernel = values.get(weights.SOFTMAX + "W", values.get("embedding"))
    return {
        weights.SOFTMAX + "W": kernel,
        weights.SOFTMAX + "b": values[weights.SOFTMAX + "b"],
        "vocabulary": np.array(words, dtype=object),
    }


def _weights_path(outfile: Path) -> Path:
    """Return the HDF5 file: what is no name of one is a folder's."""
    if outfile.is_file() and outfile.suffix not in HDF5_SUFFIXES:
        expected = f"a name that ends in {' or '.join(HDF5_SUFFIXES)}, or a folder"
        raise WeightsError(f"{outfile}: a file is there; expected {expected}")
    if outfile.suffix in HDF5_SUFFIXES and not outfile.is_dir():
        return outfile
    return outfile / "weights.hdf5"


def _options_path(outfile: Path) -> Path:
    """Return where the options go: those of a run, a user or other weights stay as they are."""
    common, own = outfile.with_name(OPTIONS), outfile.with_name(f"{outfile.stem}_{OPTIONS}")
    if own.exists() and _is_exported(own):  # readers prefer it
        return own
    if not common.exists() or (_is_exported(common) and not _is_needed(common, outfile)):
        return common
    if not own.exists():
        return own
    raise WeightsError(f"{own}: these options are from no export; give another --output")


def _is_needed(options_file: Path, outfile: Path) -> bool:
    """Return whether a run, or weights other than these, go with exported options.

    A run may have started from the options of an export. So may the user of the reference who was
    told to add the row of padding to a run's options by hand.
    """
    folder = options_file.parent
    if (folder / "checkpoint").exists() or checkpoint_paths(folder):
        return True
    mark = load_model_options(options_file).other.get(EXPORT_ID)
    softmax = f"{outfile.stem}_softmax"
    others = [p for p in folder.iterdir() if p.suffix in HDF5_SUFFIXES and p.is_file()]
    return mark is not None and any(
        p.name != outfile.name and p.stem != softmax and _id_of(p) == mark for p in others
    )


def _id_of(path: Path) -> str | None:
    try:
        return read_export_id(path)
    except WeightsError:  # no HDF5 file, though its name says so
        return None


def _is_exported(options_file: Path) -> bool:
    """Return whether options are an export's, which another export may replace."""
    try:
        options = load_model_options(options_file)
    except OptionsError:
        return False
    if EXPORT_ID in options.other:
        return True
    cnn = options.char_cnn  # older exports have no id, but a row of padding
    return cnn is not None and cnn.n_characters == N_CHARACTERS_WITH_PADDING


def _compare(values: dict[str, np.ndarray], options_file: Path, weight_file: Path) -> None:
    """Load what was written as a user would and compare it to the last bit."""
    loaded = weights.stored_values(load_bilm(options_file, weight_file))
    for name, value in values.items():
        if not np.array_equal(loaded[name], value):
            raise WeightsError(f"{name} reads back differently from what was written, nothing kept")


def _warn_of_readers(options: ModelOptions) -> None:
    reasons = "; ".join(missing_for_allennlp(options))
    if reasons:
        logging.warning("AllenNLP's Elmo cannot load this model (%s); bilm can.", reasons)
