"""Export of a model as HDF5 and options files, which existing readers of ELMo load."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from bilm.errors import DataError, OptionsError, WeightsError
from bilm.export.model_card import missing_for_allennlp
from bilm.options.model_options import EXPORT_ID
from bilm.options.run_options import load_model_options
from bilm.options.schema import write as write_options
from bilm.storage import names as weights
from bilm.storage.checkpoint import checkpoint_paths
from bilm.storage.formats.bilm_tf import read_export_id
from bilm.storage.hdf5 import save_hdf5
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.files import expanded, protect, replacing
from bilm.support.model_files import (
    CHECKPOINT_LIST,
    HDF5_SUFFIXES,
    OPTIONS,
    SOFTMAX_ENDING,
    VOCABULARY,
    WEIGHTS,
)
from bilm.support.urls import require_local


def dump_weights(
    save_dir: str | Path | StoredModel,
    outfile: str | Path,
    include_softmax: bool = False,
    vocab_file: str | Path | None = None,
) -> list[Path]:
    """Write a model as HDF5 and options, and compare them after loading.

    The files share an id, so that files of two exports are refused, also after a kill.

    Args:
        save_dir: a run, whose latest checkpoint is exported, or a model of another format except
            ELMoForManyLangs: see `bilm.storage.stored_model.open_model`.
        outfile: the HDF5 file, whose name ends in `.hdf5` or `.h5`; or a folder, where the file is
            named `weights.hdf5`. The options are written beside it to `options.json`, or to
            `<stem>_options.json` if `options.json` belongs to a run or to other weights or was not
            written by an export.
        include_softmax: also write `<stem>_softmax.hdf5` with `softmax/W` (V, P), `softmax/b` (V,)
            and `vocabulary` (V,), UTF-8 strings.
        vocab_file: vocabulary for the softmax, and for a model that reads words, which requires a
            copy beside its weights; None for `vocab.txt` in the model's folder.
    Returns: the paths of weights, options and softmax.
    Raises: OptionsError, DataError, WeightsError.
    """
    require_local(outfile, "an exported model")
    stored, outfile = open_model(save_dir), _weights_path(Path(expanded(outfile)))
    stored.require_trainable("be exported to HDF5")
    protect(outfile, *stored.own_files)
    options_file = _options_path(outfile)
    has_softmax = include_softmax or stored.checkpoint
    model = stored.build_language_model("be exported") if has_softmax else stored.build()
    if stored.mixes:
        logging.warning("%s: the learned mix of the layers is not exported", stored)
    vocabulary = stored.vocabulary(vocab_file) if include_softmax else None
    if reasons := "; ".join(missing_for_allennlp(model.options)):
        logging.warning("AllenNLP's Elmo cannot load this model (%s); bilm can.", reasons)

    values, options = weights.stored_values(model), model.options.for_export()
    mark = {EXPORT_ID: export_id(options, values)}
    written = [outfile, options_file]
    words_file, copied = stored.vocabulary_file(vocab_file), outfile.with_name(VOCABULARY)
    stored.check_words(words_file)
    if words_file and copied.exists() and copied.read_bytes() != words_file.read_bytes():
        raise DataError(f"{copied}: contains other words than {words_file}; use another folder")
    # Files are renamed into place only after they have been read back and compared. The options
    # are first: they are the only file that may lack an id, if an older bilm wrote them.
    with ExitStack() as names:
        if vocabulary is not None:
            written.append(outfile.with_name(outfile.stem + SOFTMAX_ENDING))
            words = vocabulary.words
            new_softmax = names.enter_context(replacing(written[-1]))
            save_hdf5(new_softmax, _softmax_values(values, words), mark)
        if words_file is not None and not copied.exists():
            shutil.copy(words_file, names.enter_context(replacing(copied)))
            logging.info("%s: the vocabulary, which the model requires", copied)
        new_weights = names.enter_context(replacing(outfile))
        new_options = names.enter_context(replacing(options_file))
        bilm_values = {k: v for k, v in values.items() if weights.is_bilm(k)}
        save_hdf5(new_weights, bilm_values, mark)
        write_options(new_options, options | mark)
        loaded = weights.stored_values(open_model(new_options, new_weights).build())
        for name, value in bilm_values.items():
            if not np.array_equal(loaded[name], value):
                raise WeightsError(
                    f"{name} differs after it was written and read back; no file was kept"
                )
    return written


def export_id(options: Mapping[str, Any], values: Mapping[str, np.ndarray]) -> str:
    """Return the id of an export: a digest of its options and values, 16 hexadecimal digits."""
    digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode())
    for name in sorted(values):
        digest.update(name.encode() + b"\0")
        digest.update(np.ascontiguousarray(values[name]).data)
    return digest.hexdigest()[:16]


def _softmax_values(values: dict[str, np.ndarray], words: list[str]) -> dict[str, np.ndarray]:
    kernel = values.get(weights.SOFTMAX + "W", values.get("embedding"))
    return {
        weights.SOFTMAX + "W": kernel,
        weights.SOFTMAX + "b": values[weights.SOFTMAX + "b"],
        "vocabulary": np.array(words, dtype=object),
    }


def _weights_path(outfile: Path) -> Path:
    """Return the path of the HDF5 file; a path without its ending is a folder."""
    if outfile.is_file() and outfile.suffix not in HDF5_SUFFIXES:
        expected = f"a name that ends in {' or '.join(HDF5_SUFFIXES)}, or a folder"
        raise WeightsError(f"{outfile}: is a file; expected {expected}")
    if outfile.suffix in HDF5_SUFFIXES and not outfile.is_dir():
        return outfile
    return outfile / WEIGHTS


def _options_path(outfile: Path) -> Path:
    """Return the path for the options; it never belongs to a run, to other weights or to the
    user."""
    common, own = outfile.with_name(OPTIONS), outfile.with_name(f"{outfile.stem}_{OPTIONS}")
    if own.exists() and _is_exported(own):  # readers prefer this file
        return own
    if not common.exists() or (_is_exported(common) and not _is_needed(common, outfile)):
        return common
    if not own.exists():
        return own
    raise WeightsError(f"{own}: these options are not from an export; pass another --output")


def _is_needed(options_file: Path, outfile: Path) -> bool:
    """Return whether exported options belong to a run or to other weights.

    A run may use the options of an export, and users of the reference add the row of padding to the
    options of a run by hand.
    """
    folder = options_file.parent
    if (folder / CHECKPOINT_LIST).exists() or checkpoint_paths(folder):
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
    except WeightsError:  # not an HDF5 file, despite its name
        return None


def _is_exported(options_file: Path) -> bool:
    """Return whether options are from an export, so that another export may replace them."""
    try:
        return EXPORT_ID in load_model_options(options_file).other
    except OptionsError:
        return False
