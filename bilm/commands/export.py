"""`bilm export`: a biLM in the form that another program loads."""

from cloup.constraints import Equal, If, Not, accept_none, constraint, require_all

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import printable

NOTE = """
hdf5: HDF5 weights and options.json in the format of bilm-tf and AllenNLP. MODEL is any stored biLM
except of ELMoForManyLangs. The command also writes a model card, README.md beside weights.hdf5 or
<stem>_README.md; an existing file is not overwritten.

saved_model: a folder for TensorFlow Serving. MODEL is any stored biLM that reads characters, except
of ELMoForManyLangs. The signature serving_default reads sentences, with tokens separated by white
space, and returns the layers, and for each sentence the average of the layers and tokens. The
signatures `tokens` and `default` are those of the old TensorFlow Hub module.

onnx: one file. MODEL is any stored biLM that reads characters or lexicons. The exported model reads
the ids that bilm.Elmo(MODEL).batcher() computes and returns the outputs of serving_default. It
requires the extra onnx.

word2vec: text with the vectors of words without context (layer 0), which gensim reads.
"""


@command(tensorflow=True, notes=[NOTE])
@opt.group(
    "Files",
    opt.option("--model", opt.FILE_OR_URL, "Run or other stored biLM.", metavar="MODEL",
               required=True),
    opt.weights_option,
    opt.option("--output", opt.FILE, "File or folder to write.", metavar="FILE|FOLDER",
               required=True),
    opt.option("--to", opt.OneOf(["hdf5", "saved_model", "onnx", "word2vec"]),
               "Format of the export.", default="hdf5"),
)  # fmt: skip
@opt.group(
    "hdf5",
    opt.flag("--include_softmax", "Also write the softmax and its words to <stem>_softmax.hdf5."),
    opt.option("--vocab", opt.FETCHED, "Words of the softmax.", "vocab.txt in the model's folder"),
)  # fmt: skip
@opt.group("word2vec", opt.option("--words", opt.FETCHED, "Words, one per line."))
@constraint(If(Equal("to", "word2vec"), require_all, accept_none), ["words"])
@constraint(If(Not(Equal("to", "hdf5")), accept_none), ["include_softmax", "vocab"])
def export(
    model: str, weights: str | None, output: str, to: str, include_softmax: bool,
    vocab: str | None, words: str | None,
) -> None:  # fmt: skip
    """Export a biLM to a format that other programs load.

    Examples:
      bilm export --model run --output elmo
      bilm export --model run --output elmo/weights.hdf5 --include_softmax
      bilm export --model elmo --to saved_model --output served/elmo/1
      bilm export --model elmo --to onnx --output elmo.onnx
      bilm export --model elmo --to word2vec --words words.txt --output words.vec
    """
    from bilm.data.text import read_lines
    from bilm.elmo.layer import Elmo
    from bilm.export.hdf5 import dump_weights
    from bilm.export.model_card import write_card
    from bilm.export.onnx import export_onnx
    from bilm.export.saved_model import export_saved_model
    from bilm.export.word2vec import write_word2vec
    from bilm.storage.stored_model import open_model
    from bilm.support.files import protect

    stored = open_model(model, weights)
    written = [output]
    if to == "hdf5":
        paths = dump_weights(stored, output, include_softmax, vocab)
        card = write_card(stored, paths)
        written = [str(path) for path in [*paths, card] if path is not None]
    elif to == "saved_model":
        export_saved_model(Elmo(stored, combine="average"), output)
    elif words is not None:
        protect(output, *stored.own_files, words)
        write_word2vec(stored, [word for _, word in read_lines(words)], output)
    else:
        protect(output, *stored.own_files)
        export_onnx(Elmo(stored, combine="average"), output)
    print(printable("\n".join(f"wrote {path}" for path in written)))
