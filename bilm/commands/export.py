"""Write a biLM in the form that another program loads.

Examples:
  bilm export --model run --output elmo
  bilm export --model run --output elmo/weights.hdf5 --include_softmax
  bilm export --model elmo --to saved_model --output served/elmo/1
  bilm export --model elmo --to onnx --output elmo.onnx
  bilm export --model elmo --to projector --counts counts.tsv --output projector

--model is a run, of bilm or of the TensorFlow 1 reference: its folder, an archive of it (ZIP, tar,
tar.gz), or the URL of one; unless --to is hdf5, also any other stored biLM, as for bilm embed.

hdf5 writes HDF5 and options.json, the files that readers of ELMo load. What is written is loaded
back and compared before success is reported. A model card is written too: README.md beside
weights.hdf5, <stem>_README.md beside a file of another name. A card that somebody has changed stays
as it is.

saved_model writes a folder for TensorFlow Serving and every other program that loads a SavedModel.
Its signature serving_default takes sentences, their tokens between spaces, and returns the layers
and the mean of their average over the tokens; `tokens` and `default` are those of the old hub
module. bilm.export_saved_model writes a layer whose weighting of the layers was trained.

onnx writes one file that reads the ids of characters, as bilm.Batcher makes them, and returns the
same as serving_default. It needs the extra onnx.

projector writes the vectors and counts of the most frequent words for TensorBoard:
tensorboard --logdir FOLDER. bilm vocab --counts writes the counts.
"""

from __future__ import annotations

from argparse import Namespace

from bilm.commands.flags import Flags, WrongUse
from bilm.progress import working

FORMATS = ("hdf5", "saved_model", "onnx", "projector")
ONLY_FOR = {  # the formats to which a flag means something
    "include_softmax": ("hdf5",),
    "vocab": ("hdf5", "projector"),
    "weights": ("saved_model", "onnx", "projector"),
    "max_sentences": ("saved_model",),
    "max_tokens": ("saved_model",),
    "counts": ("projector",),
    "max_words": ("projector",),
}
MAX_SENTENCES, MAX_TOKENS, MAX_WORDS = 256, 512, 10_000


def define_flags(flags: Flags) -> None:
    flags.group("files")
    flags.path(
        "model", "Folder of a run, or a stored biLM.", "MODEL", required=True, old=["save_dir"]
    )
    flags.path("weights", "HDF5 weights, where MODEL is options.json.")
    flags.path(
        "output", "The file or folder to write.", "FILE|FOLDER", required=True, old=["outfile"]
    )
    flags.choice("to", "What to write.", FORMATS, default="hdf5")
    flags.path(
        "vocab",
        "Vocabulary for the softmax, or of a model that reads words [vocab.txt in the run].",
        old=["vocab_file"],
    )
    flags.group("hdf5")
    flags.switch("include_softmax", "Also write <stem>_softmax.hdf5 with its words.")
    flags.group("saved_model")
    flags.integer("max_sentences", f"The most in a request [{MAX_SENTENCES}].", 1)
    flags.integer("max_tokens", f"The most in a sentence of a request [{MAX_TOKENS}].", 1)
    flags.group("projector")
    flags.path("counts", "A word, a tab and its count per line, frequent words first.")
    flags.integer("max_words", f"Write no more words than this [{MAX_WORDS:,}].", 1)


def main(args: Namespace) -> None:
    for name, formats in ONLY_FOR.items():
        if getattr(args, name) and args.to not in formats:
            raise WrongUse(f"--{name} has no meaning with --to {args.to}")
    writers = {"hdf5": _hdf5, "saved_model": _saved_model, "onnx": _onnx, "projector": _projector}
    with working(f"exporting to {args.to}"):
        lines = writers[args.to](args)
    print("\n".join(lines))


def _hdf5(args: Namespace) -> list[str]:
    from bilm.training.card import write_card
    from bilm.training.export import dump_weights

    written = dump_weights(args.model, args.output, args.include_softmax, args.vocab)
    card = write_card(args.model, written)
    return [f"wrote {path}" for path in [*written, *([card] if card else [])]]


def _saved_model(args: Namespace) -> list[str]:
    from bilm.elmo import Elmo
    from bilm.saved_model import export_saved_model

    bounds = args.max_sentences or MAX_SENTENCES, args.max_tokens or MAX_TOKENS
    elmo = Elmo(args.model, args.weights, combine="average")
    export_saved_model(elmo, args.output, *bounds)
    return [f"wrote {args.output}: up to {bounds[0]} sentences of {bounds[1]} tokens per request"]


def _onnx(args: Namespace) -> list[str]:
    from bilm.elmo import Elmo
    from bilm.files import keep_inputs
    from bilm.onnx_model import export_onnx
    from bilm.storage.formats.known import model_files
    from bilm.storage.locate import resolve

    keep_inputs(args.output, *model_files(*resolve(args.model, args.weights)))
    export_onnx(Elmo(args.model, args.weights, combine="average"), args.output)
    return [f"wrote {args.output}"]


def _projector(args: Namespace) -> list[str]:
    from bilm.projector import export_projector

    if args.counts is None:
        raise WrongUse("--to projector needs --counts, which bilm vocab --counts writes")
    n_words = export_projector(
        args.model, args.weights, args.counts, args.output, args.max_words or MAX_WORDS, args.vocab
    )
    shown_by = f"tensorboard --logdir {args.output} shows them"
    return [f"wrote {args.output}: {n_words:,} words; {shown_by}"]
