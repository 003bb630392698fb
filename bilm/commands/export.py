"""`bilm export`: a biLM in the form that another program loads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import printable


def _hdf5(model: str, output: str, include_softmax: bool, vocab: str | None, **_: Any) -> str:
    from bilm.export.hdf5 import dump_weights
    from bilm.export.model_card import write_card
    from bilm.storage.stored_model import open_model

    stored = open_model(model)
    written = dump_weights(stored, output, include_softmax, vocab)
    card = write_card(stored, written)
    return "\n".join(f"wrote {path}" for path in [*written, *([card] if card else [])])


def _saved_model(model: str, weights: str | None, output: str, **_: Any) -> str:
    from bilm.elmo.layer import Elmo
    from bilm.export.saved_model import export_saved_model

    elmo = Elmo(model, weights, combine="average")
    export_saved_model(elmo, output)
    return f"wrote {output}"


def _onnx(model: str, weights: str | None, output: str, **_: Any) -> str:
    from bilm.elmo.layer import Elmo
    from bilm.export.onnx import export_onnx
    from bilm.storage.stored_model import open_model
    from bilm.support.model_files import protect

    stored = open_model(model, weights)
    protect(output, *stored.own_files)
    export_onnx(Elmo(stored, combine="average"), output)
    return f"wrote {output}"


class Form(NamedTuple):
    """A form of export.

    Fields:
        write: function from the values of all options to the text to print.
        options: options that this form uses, in addition to --model, --output and --to.
        help: paragraph of the help.
    """

    write: Callable[..., str]
    options: tuple[str, ...]
    help: str


FORMS = {
    "hdf5": Form(
        _hdf5,
        ("include_softmax", "vocab"),
        "HDF5 weights and options.json in the format of bilm-tf and AllenNLP. Both files are read "
        "back and compared before they are renamed into place. --model must be a run. The command "
        "also writes a model card, README.md beside weights.hdf5 or <stem>_README.md; an edited "
        "card is not overwritten.",
    ),
    "saved_model": Form(
        _saved_model,
        ("weights",),
        "a folder for TensorFlow Serving and other programs that load a SavedModel. The signature "
        "serving_default reads sentences, with tokens separated by white space, and returns the "
        "layers and one vector per sentence: the average of the layers, averaged over the tokens. "
        "The signatures `tokens` and `default` have the inputs and outputs of the old TensorFlow "
        "Hub module. To export a layer with a trained weighting, call bilm.export_saved_model.",
    ),
    "onnx": Form(
        _onnx,
        ("weights",),
        "one file. The model reads the character ids that bilm.Batcher computes and returns the "
        "outputs of serving_default. It requires the extra onnx.",
    ),
}
OPTIONS = sorted({name for form in FORMS.values() for name in form.options})
NOTE = """
For --to hdf5, --model is a run of bilm or of the TensorFlow 1 reference: its folder, an
archive of it (ZIP, tar, tar.gz) or the URL of one. saved_model and onnx accept any stored biLM that
reads characters.
"""


@command(notes=[NOTE, *(f"{name}: {form.help}" for name, form in FORMS.items())])
@opt.group(
    "Files",
    opt.option("--model", opt.FILE_OR_URL, "Run or other stored biLM.", metavar="MODEL",
               required=True),
    opt.weights_option,
    opt.option("--output", opt.FILE, "File or folder to write.", metavar="FILE|FOLDER",
               required=True),
    opt.option("--to", opt.OneOf(FORMS), "Format of the export.", default="hdf5"),
    opt.option("--vocab", opt.FETCHED, "Vocabulary of the softmax.",
               "vocab.txt in the model's folder"),
)  # fmt: skip
@opt.group(
    "hdf5",
    opt.flag("--include_softmax", "Also write the softmax and its words to <stem>_softmax.hdf5."),
)
@click.pass_context
def export(context: click.Context, to: str, **values: Any) -> None:
    """Export a biLM to a format that other programs load.

    Examples:
      bilm export --model run --output elmo
      bilm export --model run --output elmo/weights.hdf5 --include_softmax
      bilm export --model elmo --to saved_model --output served/elmo/1
      bilm export --model elmo --to onnx --output elmo.onnx
    """
    from absl import logging

    form = FORMS[to]
    for name in OPTIONS:
        is_given = context.get_parameter_source(name) == ParameterSource.COMMANDLINE
        if is_given and name not in form.options:
            raise click.UsageError(f"--{name} has no effect with --to {to}")
    logging.info("exporting to %s", to)
    print(printable(form.write(**values)))
