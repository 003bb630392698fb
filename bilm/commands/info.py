"""`bilm info`: what a stored model consists of."""

from __future__ import annotations

import json as json_module
import math
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import as_json, printable
from bilm.errors import OptionsError
from bilm.training.history import COLUMNS, read_history

META_CHARACTERS = 200  # of a line of metadata
HISTORY_ROWS = 10


@command(notes=[opt.MODEL_FORMS])
@click.argument("model", required=False, type=opt.FILE_OR_URL)
@opt.group(
    "Model",
    opt.option("--model", opt.FILE_OR_URL, "The model, as an option instead of an argument.",
               dest="named_model", metavar="MODEL"),
    opt.weights_option,
)  # fmt: skip
@opt.group(
    "Output",
    opt.option("--plot", opt.FILE, "Picture of a run's curves: .png, .svg or .pdf."),
)
@opt.json_option
def info(
    model: str | None,
    named_model: str | None,
    weights: str | None,
    plot: str | None,
    json: bool,
) -> None:
    """Describe a stored model.

    The description contains the format, sizes, vocabulary, files with SHA-256, memory, and a line
    of Python that loads the model. Damaged or missing files are listed as problems. For a run, the
    last evaluations are also shown; --plot draws the loss, the held-out perplexity, the learning
    rate and the speed, and requires the extra analysis.

    Examples:
      bilm info run
      bilm info run --plot curves.png
      bilm info elmo.zip --json
      bilm info nlpl:144
      bilm info options.json --weights weights.hdf5
    """
    from bilm.storage.stored_model import open_model

    if (model is None) == (named_model is None):
        raise click.UsageError("expected one MODEL")
    stored = open_model(model or named_model or "", weights)
    found = stored.describe()
    evaluations = []
    if stored.checkpoint:
        from bilm.training.run_folder import RunFolder  # requires TensorFlow

        folder = RunFolder(stored.folder)
        evaluations = _evaluations(folder.history_file)
        if folder.measured_file.exists() and folder.read_measured() is None:
            found["problems"].append(f"{folder.measured_file}: not the record of an evaluation")
        if plot:
            from bilm.analysis.curves import plot_history

            plot_history(read_history(folder.history_file), plot, stored.folder.name)
    elif plot:
        raise OptionsError(f"--plot: {stored} is not a run; expected the folder of `bilm train`")
    if json:
        print(as_json({**found, "evaluations": evaluations}, indent=2))
        return
    print(printable("\n".join(_lines(found))))
    if evaluations:
        _print_table(evaluations)


def _evaluations(path: Path) -> list[dict[str, str]]:
    """Return the last rows of a run's history with a held-out perplexity, or else its last rows."""
    rows = [{name: row[name] or "" for name in COLUMNS} for row in read_history(path)]
    return ([row for row in rows if row["heldout_perplexity"]] or rows)[-HISTORY_ROWS:]


def _print_table(rows: list[dict[str, str]]) -> None:
    """Print rows as a table."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, title="Last evaluations", title_justify="left")
    for name in rows[0]:
        title = name.replace("_", " ")
        widest = max(map(len, title.split()))  # whole words, also in a narrow terminal
        table.add_column(title, justify="right", min_width=widest)
    for row in rows:
        table.add_row(*(Text(printable(_rounded(value))) for value in row.values()))
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120
    Console(file=sys.stdout, width=width, highlight=False).print(table)


def _rounded(value: str) -> str:
    """Return a number with five digits, and other text unchanged."""
    try:
        return f"{int(value):,}"
    except ValueError:
        pass
    try:
        return f"{float(value):,.5g}"
    except ValueError:
        return value


def _lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a description."""
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
    several = [(f"mix {k}", _mix_line(mix)) for k, mix in enumerate(found["mixes"])]
    several += [("problem", line) for line in found["problems"]]
    several += [("metadata", line) for line in _metadata_lines(found["metadata"])]
    several += [("card", found["card"])] if found["card"] else []
    several += [("file", file) for file in files]
    for name, value in [*rows.items(), *several, ("use", found["use"])]:
        yield f"{name:<13} {value}"


def _mix_line(mix: dict[str, Any]) -> str:
    """Return the learned weights of the layers after the softmax, and gamma."""
    exponentials = [math.exp(weight - max(mix["weights"])) for weight in mix["weights"]]
    shares = ", ".join(f"{value / sum(exponentials):.3f}" for value in exponentials)
    normalized = ", layers normalized" if mix["do_layer_norm"] else ""
    return f"layers weighted {shares}, gamma {mix['gamma']:.5g}{normalized}"


def _metadata_lines(values: dict[str, Any]) -> Iterable[str]:
    """Yield a line for each key of a model's metadata."""
    for key, value in values.items():
        text = value if isinstance(value, str) else json_module.dumps(value, ensure_ascii=False)
        text = " ".join(text.split())
        cut = text if len(text) <= META_CHARACTERS else f"{text[:META_CHARACTERS]}..."
        yield f"{key}: {cut}"
