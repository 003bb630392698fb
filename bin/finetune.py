#!/usr/bin/env python
"""Train a stored biLM on, on another corpus; held-out perplexity is measured before and after.

Examples:
  finetune.py --source run --train_prefix 'tweets/*.txt' --save_dir tuned \\
      --heldout_prefix dev.txt --n_epochs 2 --learning_rate 0.1
  finetune.py --source run --new_vocab_file words.txt --train_prefix 'tweets/*.txt' \\
      --save_dir tuned
  finetune.py --source options.json --weight_file weights.hdf5 --new_vocab_file words.txt \\
      --train_prefix 'tweets/*.txt' --save_dir tuned --batch_size 64
  finetune.py --source bilm_tf_checkpoint --vocab_file vocab.txt --train_prefix 'tweets/*.txt' \\
      --save_dir tuned

--source is one of
  the folder of a run of train_elmo.py, with its softmax and its vocab.txt;
  the folder of a TensorFlow 1 checkpoint of the reference, with its softmax, and --vocab_file;
  an exported model: a folder, a ZIP archive, a URL, a published name such as small, or the options
  beside --weight_file. HDF5 weights hold no softmax (<stem>_softmax.hdf5 is not read
  here): --new_vocab_file is needed.

--new_vocab_file has a new softmax predict other words; those which the source's vocabulary holds
too take over their rows if the source has a softmax. A model that reads words and not characters
keeps its vocabulary.

Rows start afresh now and then (--state_reset_probability), so that the tuned model does well from
zero state even if its source does not. Options that are not given are the source's. What comes out
is the folder of a run, for run_test.py and dump_weights.py; the same command continues it. The last
lines on standard output are PERPLEXITY BEFORE = <number> and PERPLEXITY AFTER = <number>.
"""

from bilm.commands import command, flag_kinds, run_flags
from bilm.commands.command import FLAGS, flags

CHANGES = (
    "batch_size",
    "dropout",
    "n_epochs",
    "n_negative_samples_batch",
    "sample_softmax",
    "state_reset_probability",
    "unroll_steps",
    *run_flags.RATE,
)
run_flags.define()
flags.adopt_module_key_flags(run_flags)  # --help shows them
flag_kinds.define_path("source", None, "What to start from: see above.")
flag_kinds.define_path("weight_file", None, "HDF5 file, where --source is its options.json.")
flag_kinds.define_path("vocab_file", None, "The source's vocabulary [vocab.txt in its folder].")
flag_kinds.define_path("new_vocab_file", None, "Other words to predict, by a new softmax.")
flags.DEFINE_integer("n_epochs", None, "Passes over the corpus [1].", 1)
flags.DEFINE_integer("batch_size", None, "Rows a replica [the source's].", 1)
flags.DEFINE_integer("unroll_steps", None, "Tokens of a row in a step [the source's].", 1)
flags.DEFINE_float("dropout", None, "Rate [the source's].", 0, 1)
flags.DEFINE_integer("n_negative_samples_batch", None, "Negatives a step [the source's].", 1)
flags.DEFINE_bool("sample_softmax", None, "Sampled loss, or the full one [the source's].")
flags.DEFINE_float(
    "state_reset_probability", None, "Of a row to start a window from zero state [0.05].", 0, 1
)


def main() -> int:
    from bilm.training.finetuning import finetune

    result = finetune(
        FLAGS.source,
        weight_file=FLAGS.weight_file,
        vocab_file=FLAGS.vocab_file,
        new_vocab_file=FLAGS.new_vocab_file,
        changes=run_flags.changes(CHANGES),
        **run_flags.arguments(),
    )
    for name, measured in (("BEFORE", result.before), ("AFTER", result.after)):
        if measured is not None:
            print(f"PERPLEXITY {name} = {measured.mean}")
    return 0 if result.finished else command.INTERRUPTED


if __name__ == "__main__":
    command.run(main, required=["source", "train_prefix", "save_dir"])
