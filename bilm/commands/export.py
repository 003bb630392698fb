"""Write a trained biLM as HDF5 and options.json, the files that readers of ELMo load.

Examples:
  bilm export --model run --output elmo
  bilm export --model run --output elmo/weights.hdf5 --include_softmax

--model is the folder of a run, of bilm or of the TensorFlow 1 reference. What is written is loaded
back and compared before success is reported.
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
    from bilm.training.export import dump_weights

    for path in dump_weights(args.model, args.output, args.include_softmax, args.vocab):
        print(f"wrote {path}")
