"""Options and weights in files -> a ready biLM."""

from __future__ import annotations

from pathlib import Path

from bilm.language_model import BiLM
from bilm.options import ModelOptions, load_model_options
from bilm.storage import names as weights
from bilm.storage.export_id import check_same_export
from bilm.storage.locate import resolve
from bilm.storage.stored_weights import StoredWeights


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
    options = stored_options(options_file, weight_file)
    if options.char_cnn is not None and not words:
        weights.check_room(options, weight_file)
        return options, None, StoredWeights(weight_file)
    options, table = options.replace(char_cnn=None), embedding_weight_file or weight_file
    n_words = weights.n_words(table)
    weights.check_room(options, weight_file, table, n_rows=n_words)
    return options, n_words, StoredWeights(weight_file, table)


def stored_options(options_file: Path, weight_file: Path) -> ModelOptions:
    """Read the options of a stored model; what they leave open the weights decide.

    Raises: OptionsError; WeightsError, also if the two files come from two exports.
    """
    options = load_model_options(options_file)
    options = weights.with_directions(options, lambda: weights.names_in(weight_file))
    check_same_export(options, options_file, weight_file)
    return options
