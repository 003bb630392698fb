"""What a stored model is: its format, sizes, vocabulary and files, without building it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from absl import logging

from bilm.errors import OptionsError
from bilm.files import sha256_of
from bilm.options import ModelOptions
from bilm.schema import read_object
from bilm.sizes import dense_sizes
from bilm.storage import names
from bilm.storage.cache import read_record
from bilm.storage.checkpoint import VOCABULARY, StoredRun
from bilm.storage.checkpoint_folder import open_checkpoint
from bilm.storage.formats.bilm_tf import CARD, META
from bilm.storage.formats.checkpoint import open_run
from bilm.storage.formats.known import format_of, is_run
from bilm.storage.hdf5 import strings
from bilm.storage.locate import resolve
from bilm.storage.softmax_file import softmax_beside
from bilm.storage.tensors import Tensors

FLOAT = 4  # bytes


def describe(model: str, weight_file: str | None = None) -> dict[str, Any]:
    """Describe a stored model.

    Args:
        model, weight_file: see `bilm.storage.locate.resolve`.
    Returns: values that JSON has, under the keys that `bilm info --json` prints.
    Raises: OptionsError, WeightsError, DataError.
    """
    options_path, weights_path = resolve(model, weight_file)
    home = options_path.parent
    if is_run(weights_path):
        found, files = _of_run(open_run(weights_path))
    else:
        found, files = _of_export(options_path, weights_path)
    archive = read_record(home).get("archive")
    if archive is not None:
        found["format"] += " in an archive"
        files.insert(0, Path(archive))
    given = [str(model)] if weight_file is None else [str(model), str(weight_file)]
    card, vocabulary = home / CARD, home / VOCABULARY
    use = list(map(repr, given))
    if found["reads"] == "words":
        use.append(f"vocab_file={str(vocabulary if vocabulary.exists() else VOCABULARY)!r}")
    return {
        "model": " ".join(given),
        **found,
        "expects": format_of(weights_path).EXPECTS,
        "metadata": _metadata(home / META),
        "card": str(card) if card.is_file() else None,
        "files": [describe_file(path) for path in dict.fromkeys(files) if path.is_file()],
        "use": f"embedder = bilm.ElmoEmbedder({', '.join(use)})",
    }


def _of_run(run: StoredRun) -> tuple[dict[str, Any], list[Path]]:
    """Describe a run's checkpoint; return its files too."""
    types = open_checkpoint(run.path).get_variable_to_dtype_map()
    ours = any(name.startswith("weights/") for name in types)
    own = "weights/" if ours else "lm/"
    path = Path(run.path)
    files = [path.with_name("options.json"), path.with_name(VOCABULARY), path]
    files += [p for p in sorted(path.parent.iterdir()) if p.name.startswith(f"{path.name}.")]
    found = {
        "format": f"run of {'bilm' if ours else 'the TensorFlow 1 reference'}, {path.name}",
        **shape(run.options, n_words=run.n_tokens, n_classes=run.n_tokens),
        "stored_as": sorted({t.name for name, t in types.items() if name.startswith(own)}),
    }
    return found, files


def _of_export(options_path: Path, weights_path: Path) -> tuple[dict[str, Any], list[Path]]:
    """Describe a model in files of a format other than that of runs; return its files too."""
    format_ = format_of(weights_path)
    options = format_.read_options(options_path, weights_path)
    tensors = format_.open_tensors(options_path, weights_path, options)
    names.check_held(options, tensors.held(), tensors.source)
    softmax, words = softmax_beside(weights_path), []
    if format_.HAS_SOFTMAX and softmax.is_file():
        with names.open_hdf5(softmax) as file:
            words = strings(file, "vocabulary")
    n_words = names.n_words(tensors) if options.reads_words else len(words) or None
    found = {
        "format": format_.NAME,
        **shape(options, n_words=n_words, n_classes=len(words)),
        "stored_as": sorted(_types_of(tensors)),
    }
    return found, [*format_.files(options_path, weights_path), softmax]


def _types_of(tensors: Tensors) -> Iterable[str]:
    """Return the types that numbers are stored as."""
    with tensors.opened() as read:
        return {read(name).dtype.name for name in tensors.names}


def shape(options: ModelOptions, n_words: int | None, n_classes: int) -> dict[str, Any]:
    """Return what a model's options and its number of words say.

    Args:
        n_words: of the vocabulary, None where no file says.
        n_classes: words that its softmax predicts, 0 without one.
    """
    lstm, cnn = options.lstm, options.char_cnn
    lexicons = options.lexicon_encoder
    filtering = cnn or (lexicons if lexicons and lexicons.characters else None)
    n_lstm = sum(dense_sizes(options.with_table()))
    n_encoder = sum(dense_sizes(options)) - n_lstm
    if options.reads_words:
        n_encoder = (n_words or 0) * lstm.projection_dim
    n_kernel = 0 if options.share_embedding_softmax else lstm.projection_dim
    return {
        "reads": _reads(options),
        "directions": list(options.directions),
        "lstm_layers": lstm.n_layers,
        "lstm_dim": lstm.dim,
        "projection_dim": lstm.projection_dim,
        "vector_dim": len(options.directions) * lstm.projection_dim,
        "character_filters": sum(n for _, n in (filtering and filtering.filters) or ()),
        "highway_layers": filtering.n_highway if filtering else 0,
        "parameters": n_lstm + n_encoder,
        "softmax_parameters": n_classes * (n_kernel + 1),
        "vocabulary": n_words,
        "max_word_bytes": cnn.max_characters_per_token - 2 if cnn else None,
        "max_word_characters": lexicons.max_characters_per_token - 2 if lexicons else None,
        "embedder_bytes": FLOAT * (n_encoder + n_lstm),
    }


def _reads(options: ModelOptions) -> str:
    lexicons = options.lexicon_encoder
    if lexicons is None:
        return "characters" if options.char_cnn else "words"
    tables = {"words": lexicons.words, "characters": lexicons.characters}
    return " and ".join(name for name, table in tables.items() if table) + " of lexicons"


def _metadata(path: Path) -> dict[str, Any]:
    """Return the content of a `meta.json`, as archives of the NLPL repository have it."""
    if not path.is_file():
        return {}
    try:
        return read_object(path)
    except OptionsError as error:
        logging.warning("%s; ignored", error)
        return {}


def describe_file(path: Path) -> dict[str, Any]:
    """Return a file's path, bytes and SHA-256; warn if it is not what was downloaded."""
    found, recorded = sha256_of(path), read_record(path.parent).get("sha256")
    if recorded not in (None, found):
        logging.warning(
            "%s: has changed since it was downloaded: SHA-256 was %s, is %s", path, recorded, found
        )
    return {"path": str(path), "bytes": path.stat().st_size, "sha256": found}
