#!/usr/bin/env python
"""Train a biLM on text.

Examples:
  train_elmo.py --train_prefix 'corpus/*.txt' --vocab_file vocab.txt --save_dir run
  train_elmo.py --train_prefix 'corpus/*.gz' --vocab_file vocab.txt --save_dir run \\
      --options original --heldout_prefix 'heldout/*.txt' --eval_steps 5000 --gpus 0,1

The text is UTF-8, one tokenized sentence a line, plain or gzip. The vocabulary holds <S>, </S> and
<UNK> and then one word a line by falling frequency. The folder of a run that was stopped, or
killed, is continued by the same command; docs/reliability.md tells what is lost when.
"""

from bilm.commands import command, flag_kinds, run_flags
from bilm.commands.command import FLAGS, flags

run_flags.define()
flags.adopt_module_key_flags(run_flags)  # --help shows them
flag_kinds.define_path(
    "vocab_file", None, "One word per line, by falling frequency, with the marks."
)
flag_kinds.define_path(
    "options", None,
    "tiny, small, medium, original, or a path [small; a run that continues keeps its own].",
)  # fmt: skip
flags.DEFINE_integer("batch_size", None, "Rows per replica [from the options].", 1)
flags.DEFINE_integer("n_epochs", None, "Passes over the corpus [from the options].", 1)
flags.DEFINE_integer("n_train_tokens", None, "Predictions in an epoch [counted].", 1)


def main() -> int:
    from bilm.options import load_run_options
    from bilm.training.run import TrainingRun
    from bilm.training.run_folder import RunFolder

    changes = run_flags.changes(("batch_size", "n_epochs", *run_flags.RATE))
    stored = RunFolder(FLAGS.save_dir).stored_options_file()
    options = load_run_options(FLAGS.options or stored or "small")
    options = options.replace(**changes, n_train_tokens=FLAGS.n_train_tokens)
    result = TrainingRun(options, FLAGS.vocab_file, **run_flags.arguments()).train()
    return 0 if result.finished else command.INTERRUPTED


if __name__ == "__main__":
    command.run(main, required=["train_prefix", "vocab_file", "save_dir"])
