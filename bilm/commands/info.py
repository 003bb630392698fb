"""Describe a stored model: format, sizes, vocabulary, files with hashes, memory, how to use it.

Examples:
  bilm info run
  bilm info elmo.zip --json
  bilm info options.json --weights weights.hdf5

MODEL is the folder of a run, of bilm or of the TensorFlow 1 reference, or a model to embed with:
a folder, an archive, a URL, a published name such as small, or options.json with --weights.
docs/formats.md lists the formats.
"""

from __future__ import annotations

import hashlib
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.commands.flags import Flags

if TYPE_CHECKING:
    from bilm.options import ModelOptions
    from bilm.storage.tensors import Tensors

FLOAT = 4  # bytes
BLOCK = 1 << 20  # bytes read at a time


def define_flags(flags: Flags) -> None:
    flags.group("model")
    flags.positional("model", "What to describe.")
    flags.path("weights", "HDF5 weights, where MODEL is options.json.")
    flags.group("output")
    flags.switch("json", "Print one JSON object.")


def main(args: Namespace) -> None:
    import json

    from bilm.storage.checkpoint_folder import holds_checkpoint

    if args.weights is None and holds_checkpoint(args.model):
        found = describe_run(args.model)
    else:
        found = describe_export(args.model, args.weights)
    print(json.dumps(found, indent=2, ensure_ascii=False) if args.json else "\n".join(lines(found)))


def describe_run(folder: str) -> dict[str, Any]:
    """Describe the latest whole checkpoint of a run. Raises: OptionsError, WeightsError."""
    from bilm.storage.checkpoint import OPTIONS, VOCABULARY, StoredRun
    from bilm.storage.checkpoint_folder import open_checkpoint

    run = StoredRun(folder)
    types = open_checkpoint(run.path).get_variable_to_dtype_map()
    ours = any(name.startswith("weights/") for name in types)
    own = "weights/" if ours else "lm/"
    path = Path(run.path)
    files = [path.with_name(OPTIONS), path.with_name(VOCABULARY), path]
    files += [p for p in sorted(path.parent.iterdir()) if p.name.startswith(f"{path.name}.")]
    return {
        "model": folder,
        "format": f"run of {'bilm' if ours else 'the TensorFlow 1 reference'}, {path.name}",
        **shape(run.options, n_words=run.n_tokens, n_classes=run.n_tokens),
        "stored_as": sorted({t.name for name, t in types.items() if name.startswith(own)}),
        "files": list(map(describe_file, filter(Path.is_file, files))),
        "use": f"scorer = bilm.load_scorer({folder!r})",
    }


def describe_export(model: str, weight_file: str | None) -> dict[str, Any]:
    """Describe a model that has vectors for sentences. Raises: OptionsError, WeightsError."""
    from bilm.ask import softmax_beside
    from bilm.storage import names
    from bilm.storage.formats.known import format_of
    from bilm.storage.hdf5 import strings
    from bilm.storage.locate import resolve

    options_path, weights_path = resolve(model, weight_file)
    format_ = format_of(weights_path)
    options = format_.read_options(options_path, weights_path)
    tensors = format_.open_tensors(options_path, weights_path, options)
    names.check_held(options, tensors.held(), tensors.source)
    softmax, words = softmax_beside(weights_path), []
    if format_.HAS_SOFTMAX and softmax.is_file():
        with names.open_hdf5(softmax) as file:
            words = strings(file, "vocabulary")
    n_words = names.n_words(weights_path) if options.reads_words else len(words) or None
    files = [Path(model), *format_.files(options_path, weights_path), softmax]
    given = [model] if weight_file is None else [model, weight_file]
    return {
        "model": " ".join(given),
        "format": format_.NAME
        + (" in an archive" if files[0].is_file() and weight_file is None else ""),
        **shape(options, n_words=n_words, n_classes=len(words)),
        "stored_as": sorted(types_of(tensors)),
        "files": [describe_file(path) for path in dict.fromkeys(files) if path.is_file()],
        "use": f"embedder = bilm.ElmoEmbedder({', '.join(map(repr, given))})",
    }


def types_of(tensors: Tensors) -> set[str]:
    """Return the types that numbers are stored as."""
    with tensors.opened() as read:
        return {read(name).dtype.name for name in tensors.names}


def shape(options: ModelOptions, n_words: int | None, n_classes: int) -> dict[str, Any]:
    """Return what a model's options and its number of words say.

    Args:
        n_words: of the vocabulary, None where no file says.
        n_classes: words that its softmax predicts, 0 without one.
    """
    from bilm.sizes import dense_sizes

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


def describe_file(path: Path) -> dict[str, Any]:
    """Return a file's path, bytes and SHA-256."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return {"path": str(path), "bytes": path.stat().st_size, "sha256": digest.hexdigest()}


def lines(found: dict[str, Any]) -> Iterable[str]:
    """Yield the lines that people read."""
    limit, words = found["max_word_bytes"], found["vocabulary"]
    longest = f"{limit} bytes of UTF-8; the rest is cut" if limit else "any"
    if found["max_word_characters"]:
        longest = f"{found['max_word_characters']} characters; the rest is cut"
    n_softmax = found["softmax_parameters"]
    sizes = f"{found['lstm_layers']} x {found['lstm_dim']}, projected to {found['projection_dim']}"
    cnn = f"{found['character_filters']} filters, {found['highway_layers']} highway layers"
    rows = {
        "model": found["model"],
        "format": found["format"],
        "reads": found["reads"] + (f": {cnn}" if found["character_filters"] else ""),
        "LSTM": f"{sizes}, {' and '.join(found['directions'])}",
        "vectors": f"{found['lstm_layers'] + 1} layers of {found['vector_dim']}",
        "parameters": f"{found['parameters']:,}"
        + (f", and {n_softmax:,} of the softmax" if n_softmax else ", without softmax"),
        "vocabulary": "not stored" if words is None else f"{words:,} words",
        "longest word": longest,
        "stored as": ", ".join(found["stored_as"]),
        "memory": f"about {found['embedder_bytes'] / 1e6:,.2f} MB for an embedder's weights",
    }
    for file in found["files"]:
        rows[f"file {len(rows)}"] = (
            f"{file['path']}: {file['bytes']:,} bytes, sha256 {file['sha256']}"
        )
    rows["use"] = found["use"]
    for name, value in rows.items():
        name = "file" if name.startswith("file ") else name
        yield f"{name:<13} {value}"
