"""Describe a stored model: format, sizes, vocabulary, files with hashes, memory, how to use it.

Examples:
  bilm info run
  bilm info elmo.zip --json
  bilm info nlpl:144
  bilm info options.json --weights weights.hdf5
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from typing import Any

from bilm.commands.flags import Flags
from bilm.commands.model_flags import MODEL

__doc__ = f"{__doc__}{MODEL}"

META_CHARACTERS = 200  # of a line of metadata


def define_flags(flags: Flags) -> None:
    flags.group("model")
    flags.positional("model", "What to describe.")
    flags.path("weights", "HDF5 weights, where MODEL is options.json.")
    flags.group("output")
    flags.switch("json", "Print one JSON object.")


def main(args: Namespace) -> None:
    import json

    from bilm.description import describe

    found = describe(args.model, args.weights)
    print(json.dumps(found, indent=2, ensure_ascii=False) if args.json else "\n".join(lines(found)))


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
        "expects": found["expects"],
        "stored as": ", ".join(found["stored_as"]),
        "memory": f"about {found['embedder_bytes'] / 1e6:,.2f} MB for an embedder's weights",
    }
    files = [f"{f['path']}: {f['bytes']:,} bytes, sha256 {f['sha256']}" for f in found["files"]]
    several = [("metadata", line) for line in metadata_lines(found["metadata"])]
    several += [("card", found["card"])] if found["card"] else []
    several += [("file", file) for file in files]
    for name, value in [*rows.items(), *several, ("use", found["use"])]:
        yield f"{name:<13} {value}"


def metadata_lines(values: dict[str, Any]) -> Iterable[str]:
    """Yield a line per key of what was published with a model."""
    import json

    for key, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text = " ".join(text.split())
        cut = text if len(text) <= META_CHARACTERS else f"{text[:META_CHARACTERS]}..."
        yield f"{key}: {cut}"
