"""Export of a model as HDF5 and options files, which existing readers of ELMo load."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from absl import logging

from bilm.errors import DataError, WeightsError
from bilm.options.model_options import EVALUATION, EXPORT_ID, ModelOptions
from bilm.options.schema import write as write_options
from bilm.scoring.ngrams import Ngrams
from bilm.scoring.verdict import Measurement
from bilm.storage.checkpoint import checkpoint_paths
from bilm.storage.formats.bilm_tf import export_of
from bilm.storage.hdf5 import save_hdf5
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.files import expanded, protect, replacing
from bilm.support.model_files import (
    CHECKPOINT_LIST,
    HDF5_SUFFIXES,
    NGRAM_COUNTS,
    OPTIONS,
    SOFTMAX_ENDING,
    VOCABULARY,
    WEIGHTS,
)
from bilm.support.urls import require_local
from bilm.tensors import is_bilm, n_filters

ALLENNLP_CHARACTERS = 50  # of a word, with its marks
ALLENNLP_ACTIVATIONS = ("relu", "tanh")


def dump_weights(
    save_dir: str | Path | StoredModel,
    outfile: str | Path,
    include_softmax: bool = False,
    vocab_file: str | Path | None = None,
) -> list[Path]:
    """Write a model as HDF5 and options, and compare them after loading.

    The files share an id, so that files of two exports are refused, also after a kill.

    Args:
        save_dir: a run or another model except ELMoForManyLangs: see `open_model`.
        outfile: the HDF5 file, whose name ends in `.hdf5` or `.h5`; or a folder, where the file is
            named `weights.hdf5`. The options are written beside it to `options.json`, or to
            `<stem>_options.json` if `options.json` belongs to a run or to other weights or was not
            written by an export.
        include_softmax: also write `<stem>_softmax.hdf5` with `softmax/W` (V, P), `softmax/b` (V,),
            `vocabulary` (V,), UTF-8 strings, and `ngrams`, the counts of the training text.
        vocab_file: vocabulary for the softmax, and for a model that reads words, which requires a
            copy beside its weights; None for `vocab.txt` in the model's folder.
    Returns: the paths of weights, options and softmax.
    Raises: OptionsError, DataError, WeightsError.
    """
    require_local(outfile, "an exported model")
    stored = open_model(save_dir)
    stored.require_trainable("be exported to HDF5")
    has_softmax = include_softmax or stored.checkpoint is not None
    if has_softmax:
        stored.require_softmax("be exported")

    # The files to write.
    weight_file = _weights_path(Path(expanded(outfile)))
    protect(weight_file, *stored.own_files)
    options_file = _options_path(weight_file)
    softmax_file = weight_file.with_name(weight_file.stem + SOFTMAX_ENDING)
    words_copy = weight_file.with_name(VOCABULARY)
    words_file = _words_to_copy(stored, vocab_file, words_copy)
    if stored.mixes:
        logging.warning("%s: the learned mix of the layers is not exported", stored)
    if reasons := "; ".join(missing_for_allennlp(stored.options)):
        logging.warning("AllenNLP's Elmo cannot load this model (%s); bilm can.", reasons)

    # Their content
    values = dict(stored.weights(has_softmax=has_softmax).values())
    weights = {name: value for name, value in values.items() if is_bilm(name)}
    softmax = _softmax(stored, values, vocab_file) if include_softmax else {}
    options = stored.options.for_export()
    options.pop(EVALUATION, None)  # of the run whose options were copied

    # The id that they share depends on the softmax of a run even if it is not exported.
    digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode())
    for name in sorted(values):
        digest.update(name.encode() + b"\0")
        digest.update(np.ascontiguousarray(values[name]).data)
    mark = {EXPORT_ID: digest.hexdigest()[:16]}
    if measured := Measurement.of(stored):
        options[EVALUATION] = measured._replace(text=[]).to_record()

    # Files are renamed into place only after they have been read back and compared. The options
    # are first: they are the only file that may lack an id, if an older bilm wrote them.
    with ExitStack() as renaming:  # the last one first
        if include_softmax:
            save_hdf5(renaming.enter_context(replacing(softmax_file)), softmax, mark)
        if words_file is not None:
            shutil.copy(words_file, renaming.enter_context(replacing(words_copy)))
            logging.info("%s: the vocabulary, which the model requires", words_copy)
        new_weights = renaming.enter_context(replacing(weight_file))
        new_options = renaming.enter_context(replacing(options_file))
        save_hdf5(new_weights, weights, mark)
        write_options(new_options, options | mark)
        for name, value in open_model(new_options, new_weights).weights().values():
            if not np.array_equal(weights[name], value):
                raise WeightsError(
                    f"{name} differs after it was written and read back; no file was kept"
                )
    return [weight_file, options_file, *([softmax_file] if include_softmax else [])]


def missing_for_allennlp(options: ModelOptions) -> list[str]:
    """Return the reasons why AllenNLP's `Elmo` cannot load a model; empty if it can."""
    lstm, cnn = options.lstm, options.char_cnn
    reasons = []
    if len(options.directions) == 1:
        reasons.append("it reads forwards only")
    if cnn is None:
        reasons.append("it reads words, not characters")
    else:
        if cnn.activation not in ALLENNLP_ACTIVATIONS:
            reasons.append(f"the activation of its character CNN is {cnn.activation}")
        if (n := cnn.max_characters_per_token) != ALLENNLP_CHARACTERS:
            reasons.append(f"it spells words in {n} characters, not {ALLENNLP_CHARACTERS}")
        if n_filters(cnn.filters) == lstm.projection_dim:
            reasons.append("its token encoder has no CNN_proj")
    if lstm.projection_dim == lstm.dim:
        reasons.append("its LSTM has no projection W_P_0")
    if not lstm.use_skip_connections:
        reasons.append("its layers have no skip connections")
    return reasons


def _words_to_copy(stored: StoredModel, vocab_file: str | Path | None, copy: Path) -> Path | None:
    """Return the vocabulary that a model requires beside its weights; None if it requires none or
    has the copy. Raises: DataError if the copy contains other words."""
    words_file = stored.vocabulary_file(vocab_file)
    stored.check_words(words_file)
    if words_file is None or not copy.exists():
        return words_file
    if copy.read_bytes() != words_file.read_bytes():
        raise DataError(f"{copy}: contains other words than {words_file}; use another folder")
    return None


def _softmax(
    stored: StoredModel, values: Mapping[str, np.ndarray], vocab_file: str | Path | None
) -> dict[str, np.ndarray]:
    """Return the content of a softmax file; the kernel of a shared softmax is the word table."""
    content = {
        "softmax/W": values.get("softmax/W", values.get("embedding")),
        "softmax/b": values["softmax/b"],
        "vocabulary": np.array(stored.vocabulary(vocab_file).words, dtype=object),
    }
    if ngrams := Ngrams.of_model(stored):
        content[NGRAM_COUNTS] = ngrams.counts
    return content


def _weights_path(outfile: Path) -> Path:
    """Return the path of the HDF5 file; a path without its ending is a folder."""
    if outfile.suffix in HDF5_SUFFIXES and not outfile.is_dir():
        return outfile
    if outfile.is_file():
        expected = f"a name that ends in {' or '.join(HDF5_SUFFIXES)}, or a folder"
        raise WeightsError(f"{outfile}: is a file; expected {expected}")
    return outfile / WEIGHTS


def _options_path(weight_file: Path) -> Path:
    """Return the path for the options: a new file, or one that only this export needs."""
    common = weight_file.with_name(OPTIONS)
    specific = weight_file.with_name(f"{weight_file.stem}_{OPTIONS}")  # readers prefer this file
    is_replaced = export_of(specific) is not None
    if not is_replaced and _is_free(common, weight_file):
        return common
    if is_replaced or not specific.exists():
        return specific
    raise WeightsError(f"{specific}: these options are not from an export; pass another --output")


def _is_free(options_file: Path, weight_file: Path) -> bool:
    """Return whether a file of options does not exist, or is of an export and belongs neither to a
    run nor to other weights than those that are written."""
    if not options_file.exists():
        return True
    folder, export = options_file.parent, export_of(options_file)
    # A run may use the options of an export, and users of the reference add the row of padding to
    # the options of a run by hand.
    is_run = (folder / CHECKPOINT_LIST).exists() or checkpoint_paths(folder)
    if export is None or is_run:
        return False
    replaced = weight_file.name, weight_file.stem + SOFTMAX_ENDING
    others = [p for p in folder.iterdir() if p.suffix in HDF5_SUFFIXES and p.name not in replaced]
    return export not in map(export_of, others)
