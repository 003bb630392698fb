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

from absl import flags

from bilm import command

FLAGS = flags.FLAGS
MAX_SEED = 2**31 - 1
flags.DEFINE_string("train_prefix", None, "Glob of the training shards.")
flags.DEFINE_string("vocab_file", None, "One word a line, by falling frequency, with the marks.")
flags.DEFINE_string("save_dir", None, "Folder of the run: checkpoints, options, vocabulary, logs.")
flags.DEFINE_string("options", "small", "tiny, small, medium, original, or the path of a file.")
flags.DEFINE_string("heldout_prefix", None, "Glob of text to measure perplexity on.")
flags.DEFINE_integer("eval_steps", None, "Steps between evaluations [one an epoch].", 1)
flags.DEFINE_integer("batch_size", None, "Rows a replica [from the options].", 1)
flags.DEFINE_integer("n_epochs", None, "Passes over the corpus [from the options].", 1)
flags.DEFINE_integer("n_train_tokens", None, "Predictions in an epoch [counted].", 1)
flags.DEFINE_integer("n_steps", None, "Total steps of the run; overrides --n_epochs.", 1)
flags.DEFINE_integer(
    "seed", 0, "Keys weights, order of the text, dropout and negatives.", 0, MAX_SEED
)
flags.DEFINE_enum(
    "precision", "float32", ["float32", "bfloat16"],
    "Of the operands of products; weights, states, sums and the loss stay in float32.",
)  # fmt: skip
flags.DEFINE_list("gpus", None, "Numbers of the GPUs to use, e.g. 0,1 [all].")
flags.DEFINE_integer("n_gpus", None, "How many GPUs to use, 0 for the CPU [all].", 0)
flags.DEFINE_integer("cpu_replicas", 1, "Logical CPU devices to train on without a GPU.", 1)
flags.DEFINE_enum(
    "resume", "auto", ["auto", "never", "must"],
    "Continue the run in --save_dir if there is one, refuse to, or insist that there is one.",
)  # fmt: skip
flags.DEFINE_enum(
    "on_bad_utf8", "error", ["error", "replace"],
    "What text that is not UTF-8 ends in: an error, or U+FFFD in place of the bytes.",
)  # fmt: skip
flags.DEFINE_integer("checkpoint_steps", 1000, "Steps between checkpoints.", 1)
flags.DEFINE_float("checkpoint_minutes", 15.0, "Minutes between checkpoints, if that is less.", 0)
flags.DEFINE_integer("keep_checkpoints", 3, "How many checkpoints stay, the best one apart.", 1)
flags.DEFINE_integer("log_steps", None, "Steps between reports [one every 5 seconds].", 1)
flags.mark_flags_as_required(["train_prefix", "vocab_file", "save_dir"])


def main() -> int:
    from bilm.errors import BilmError
    from bilm.options import load_run_options
    from bilm.training import Saving, make_strategy, train

    if FLAGS.gpus is not None and not all(k.strip().isdigit() for k in FLAGS.gpus):
        raise BilmError(f"--gpus={','.join(FLAGS.gpus)}: expected numbers such as 0,1")
    names = ("batch_size", "n_epochs")
    changes = {name: FLAGS[name].value for name in names if FLAGS[name].value is not None}
    options = load_run_options(FLAGS.options).replace(
        **changes, n_train_tokens=FLAGS.n_train_tokens
    )
    gpus = None if FLAGS.gpus is None else [int(k) for k in FLAGS.gpus]
    result = train(
        options,
        FLAGS.vocab_file,
        FLAGS.train_prefix,
        FLAGS.save_dir,
        heldout_prefix=FLAGS.heldout_prefix,
        strategy=make_strategy(gpus, FLAGS.n_gpus, FLAGS.cpu_replicas),
        n_steps=FLAGS.n_steps,
        eval_steps=FLAGS.eval_steps,
        seed=FLAGS.seed,
        resume=FLAGS.resume,
        saving=Saving(FLAGS.checkpoint_steps, FLAGS.checkpoint_minutes, FLAGS.keep_checkpoints),
        log_steps=FLAGS.log_steps,
        precision=FLAGS.precision,
        on_bad_utf8=FLAGS.on_bad_utf8,
    )
    return 0 if result.finished else command.INTERRUPTED


if __name__ == "__main__":
    command.run(main)
