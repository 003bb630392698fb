"""A trained model -> the HDF5 and options files that existing readers of ELMo load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from absl import logging

from bilm import weights
from bilm.checkpoint import OPTIONS, load_run
from bilm.errors import WeightsError
from bilm.evaluation import model_vocabulary
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
    save_dir, outfile = Path(save_dir), Path(outfile)
    model = load_run(save_dir)
    if include_softmax and vocab_file is None:
        raise WeightsError("the softmax is stored with its words: the vocabulary file is needed")
    vocabulary = model_vocabulary(str(vocab_file), model) if include_softmax else None
    _warn_of_readers(model)

    values = weights.stored_values(model)
    bilm_values = {k: v for k, v in values.items() if not k.startswith(weights.SOFTMAX)}
    options_file = _options_path(outfile)
    weights.save_hdf5(outfile, bilm_values)
    write_options(options_file, model.options.for_export())
    _compare(bilm_values, options_file, outfile)
    written = [outfile, options_file]
    if vocabulary is not None:
        softmax_file = outfile.with_name(f"{outfile.stem}_softmax.hdf5")
        words = [vocabulary.id_to_word(i) for i in range(vocabulary.size)]
        weights.save_hdf5(softmax_file, _softmax_values(values, words))
        written.append(softmax_file)
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
            raise WeightsError(
                f"{weight_file}: {name} reads back differently from what was written"
            )


def _warn_of_readers(model: BiLM) -> None:
    options, lstm = model.options, model.options.lstm
    lacks: dict[str, Callable[[], bool] | bool] = {
        "it reads words, not characters": options.char_cnn is None,
        "it reads forwards only": not options.bidirectional,
        "its token encoder has no CNN_proj": options.char_cnn is not None
        and model.encoder.kernel is None,
        "its LSTM has no projection W_P_0": lstm.projection_dim == lstm.dim,
    }
    reasons = [reason for reason, holds in lacks.items() if holds]
    if reasons:
        logging.warning(
            "AllenNLP's Elmo cannot load this model (%s); bilm can.", "; ".join(reasons)
        )
