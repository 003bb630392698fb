"""Write a trained biLM as HDF5 and options.json, the files that readers of ELMo load.

Examples:
  bilm export --model run --output elmo
  bilm export --model run --output elmo/weights.hdf5 --include_softmax

--model is a run, of bilm or of the TensorFlow 1 reference: its folder, an archive of it (ZIP, tar,
tar.gz), or the URL of one. What is written is loaded back and compared before success is reported.
A model card is written too: README.md beside weights.hdf5, <stem>_README.md beside a file of
another name. A card that somebody has changed stays as it is.
"""

from __future__ import annotations

from argparse import Namespace

from bilm.commands.flags import Flags


def define_flags(flags: Flags) -> None:
    flags.group("files")
    flags.path("model", "Folder of a run.", "FOLDER", required=True, old=["save_dir"])
    flags.path(
        "output",
        "The HDF5 file, or the folder, to write.",
        "FILE|FOLDER",
        required=True,
        old=["outfile"],
    )
    flags.switch("include_softmax", "Also write <stem>_softmax.hdf5 with its words.")
    flags.path(
        "vocab", "Vocabulary for the softmax [vocab.txt in the run's folder].", old=["vocab_file"]
    )


def main(args: Namespace) -> None:
    from bilm.training.card import write_card
    from bilm.training.export import dump_weights

    written = dump_weights(args.model, args.output, args.include_softmax, args.vocab)
    card = write_card(args.model, written)
    for path in [*written, *([card] if card else [])]:
        print(f"wrote {path}")
