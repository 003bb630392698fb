#!/usr/bin/env python
"""Write a trained biLM as HDF5 and options.json, the files that readers of ELMo load.

Examples:
  dump_weights.py --save_dir run --outfile elmo/weights.hdf5
  dump_weights.py --save_dir run --outfile elmo/weights.hdf5 --include_softmax \\
      --vocab_file run/vocab.txt

--save_dir holds checkpoints of train_elmo.py or of the TensorFlow 1 reference. What is written is
loaded back and compared before success is reported.
"""

from bilm.commands import command, flag_kinds
from bilm.commands.command import FLAGS, flags

flag_kinds.define_path("save_dir", None, "Folder with options.json and checkpoints.")
flag_kinds.define_path("outfile", None, "The HDF5 file, or the folder, to write.")
flags.DEFINE_bool("include_softmax", False, "Also write <stem>_softmax.hdf5 with its words.")
flag_kinds.define_path("vocab_file", None, "For the softmax [vocab.txt in --save_dir].")


def main() -> None:
    from bilm.training.export import dump_weights

    paths = dump_weights(FLAGS.save_dir, FLAGS.outfile, FLAGS.include_softmax, FLAGS.vocab_file)
    for path in paths:
        print(f"wrote {path}")


if __name__ == "__main__":
    command.run(main, required=["save_dir", "outfile"])
