"""A trained model -> the HDF5 and options files that existing readers of ELMo load."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from absl import logging

from bilm import weights
from bilm.checkpoint import OPTIONS, load_run
from bilm.errors import WeightsError
from bilm.evaluation import model_vocabulary
from bilm.files import expanded, replacing
from bilm.folder import warn_of_better
from bilm.language_model import BiLM
from bilm.options import write_options
from bilm.pretrained import load_bilm


def dump_weights(
    save_dir: str | Path,
    outfile: str | Path,
    include_softmax: bool = False,
    vocab_file: str | Path | None = None,
) -> list[Path]:
    """Write a run's latest checkpoint as HDF5 with its options, and load them back to compare.

    Args:
        save_dir: a folder with `options.json` and checkpoints of ours or of the TensorFlow 1
            reference.
        outfile: the HDF5 file. The options go beside it as `options.json`, or, in a run's own
            folder, as `<stem>_options.json`.
        include_softmax: also write `<stem>_softmax.hdf5` with `softmax/W` (V, P), `softmax/b` (V,)
            and `vocabulary` (V,), UTF-8 strings.
        vocab_file: the run's vocabulary, needed for the softmax.
    Returns: the paths written.
    Raises: OptionsError, DataError, WeightsError.
    """
    save_dir, outfile = Path(expanded(save_dir)), Path(outfile)
    model = load_run(save_dir)
    warn_of_better(save_dir)
    if include_softmax and vocab_file is None:
        raise WeightsError("the softmax is stored with its words: the vocabulary file is needed")
    vocabulary = model_vocabulary(str(vocab_file), model) if include_softmax else None
    _warn_of_readers(model)

    values = weights.stored_values(model)
    bilm_values = {k: v for k, v in values.items() if not k.startswith(weights.SOFTMAX)}
    options_file = _options_path(outfile)
    written = [outfile, options_file]
    # What does not read back as it was written never gets its name.
    with replacing(outfile) as new_weights, replacing(options_file) as new_options:
        weights.save_hdf5(new_weights, bilm_values)
        write_options(new_options, model.options.for_export())
        _compare(bilm_values, new_options, new_weights)
        if vocabulary is not None:
            written.append(outfile.with_name(f"{outfile.stem}_softmax.hdf5"))
            words = [vocabulary.id_to_word(i) for i in range(vocabulary.size)]
            weights.save_hdf5(written[-1], _softmax_values(values, words))
    return written


def _softmax_values(values: dict[str, np.ndarray], words: list[str]) -> dict[str, np.ndarray]:
    kernel = values.get(weights.SOFTMAX + "W", values.get("embedding"))
    return {
        weights.SOFTMAX + "W": kernel,
        weights.SOFTMAX + "b": values[weights.SOFTMAX + "b"],
        "vocabulary": np.array(words, dtype=object),
    }


def _options_path(outfile: Path) -> Path:
    """A folder whose options.json belongs to a run keeps it."""
    options_file = outfile.with_name(OPTIONS)
    if (outfile.parent / "checkpoint").exists():
        return outfile.with_name(f"{outfile.stem}_{OPTIONS}")
    return options_file


def _compare(values: dict[str, np.ndarray], options_file: Path, weight_file: Path) -> None:
    """Load what was written as a user would and compare it to the last bit."""
    loaded = weights.stored_values(load_bilm(options_file, weight_file))
    for name, value in values.items():
        if not np.array_equal(loaded[name], value):
            raise WeightsError(f"{name} reads back differently from what was written, nothing kept")


def _warn_of_readers(model: BiLM) -> None:
    lstm, char_cnn = model.options.lstm, model.options.char_cnn
    length = char_cnn and char_cnn.max_characters_per_token
    lacks = {
        "it reads words, not characters": char_cnn is None,
        "it reads forwards only": not model.options.bidirectional,
        f"it spells words in {length} characters, not 50": length not in (None, 50),
        "its token encoder has no CNN_proj": char_cnn and model.encoder.kernel is None,
        "its LSTM has no projection W_P_0": lstm.projection_dim == lstm.dim,
        "its layers have no skip connections": not lstm.use_skip_connections,
    }
    reasons = "; ".join(reason for reason, holds in lacks.items() if holds)
    if reasons:
        logging.warning("AllenNLP's Elmo cannot load this model (%s); bilm can.", reasons)
