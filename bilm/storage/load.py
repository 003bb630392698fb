"""Options and weights in files -> a ready biLM."""

from __future__ import annotations

from pathlib import Path

from bilm.errors import OptionsError
from bilm.files import expanded
from bilm.language_model import BiLM
from bilm.options import ModelOptions
from bilm.storage import names as weights
from bilm.storage.formats.known import format_of, read_options
from bilm.storage.hdf5 import Held
from bilm.storage.locate import resolve
from bilm.storage.stored_weights import StoredWeights
from bilm.storage.tensors import HDF5Tensors


def load_bilm(
    options_file: str | Path,
    weight_file: str | Path | None = None,
    use_character_inputs: bool = True,
    embedding_weight_file: str | Path | None = None,
    precision: str = "float32",
    frozen: bool = False,
) -> BiLM:
    """Build a biLM for `Batcher` output from its stored options and weights.

    Args:
        options_file, weight_file: the two files, or what stands for them: see
            `bilm.storage.locate.resolve`. `n_characters` is 261 or 262.
        use_character_inputs: False reads token ids (`TokenBatcher`) and looks their vectors up.
        embedding_weight_file: HDF5 with `embedding` (V, P), the vectors for token ids; None takes
            those of `weight_file`, as a model trained on words has them.
        precision: of the operands of products, see `BiLM`.
        frozen: for inference alone, see `BiLM.freeze`.
    Raises: OptionsError, WeightsError.
    """
    files = options_file, weight_file, embedding_weight_file
    options, n_words, stored = stored_model(*files, words=not use_character_inputs)
    model = BiLM(options, n_words, padding=True, precision=precision)
    stored.start(model)
    if frozen:
        model.freeze()
    model.build()
    return model


def stored_model(
    options_file: str | Path,
    weight_file: str | Path | None,
    embedding_weight_file: str | Path | None,
    words: bool,
) -> tuple[ModelOptions, int | None, StoredWeights]:
    """Find a stored model, of which no value is read yet.

    Args:
        options_file, weight_file, embedding_weight_file: see `load_bilm`.
        words: whether to read words where the model reads characters.
    Returns: its options, the number of words of its table (None without one), and its weights.
    Raises: OptionsError, WeightsError.
    """
    options_file, weight_file = resolve(options_file, weight_file)
    options = read_options(options_file, weight_file)
    stored = format_of(weight_file).open_tensors(options_file, weight_file, options)
    if not options.reads_words and not words:
        weights.check_held(options, stored.held(), stored.source)
        return options, None, StoredWeights(stored)
    if embedding_weight_file is None and options.lexicon_encoder is not None:
        raise OptionsError(
            f"{weight_file.parent}: its word table stands beside characters; to read token ids, "
            "give the embedding_weight_file that dump_token_embeddings writes"
        )
    table = HDF5Tensors(expanded(embedding_weight_file)) if embedding_weight_file else stored
    options, n_words = options.with_table(), weights.n_words(table)
    found = stored.held()
    if table.paths != stored.paths:
        found = Held(*map(sum, zip(found, table.held(), strict=True)))
    weights.check_held(options, found, stored.source, n_words)
    return options, n_words, StoredWeights(stored, table)
