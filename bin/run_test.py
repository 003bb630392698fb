#!/usr/bin/env python
"""Measure the perplexity of a trained biLM on held-out text, by the full softmax.

Examples:
  run_test.py --test_prefix 'heldout/*.txt' --vocab_file run/vocab.txt --save_dir run
  run_test.py --test_prefix dev.txt --vocab_file vocab.txt --save_dir run --stateless

--save_dir holds checkpoints of train_elmo.py or of the TensorFlow 1 reference. The LSTM state is
carried from sentence to sentence within a row, so the figure depends on --batch_size;
--stateless starts each sentence afresh, --start=checkpoint where training left its rows.
The last line on standard output is AVERAGE PERPLEXITY = <number>.
"""

from bilm.commands import command, flag_kinds
from bilm.commands.command import FLAGS, flags

flag_kinds.define_path("test_prefix", None, "Glob of the text.")
flag_kinds.define_path("vocab_file", None, "The run's vocabulary [vocab.txt in --save_dir].")
flag_kinds.define_path("save_dir", None, "Folder with options.json and checkpoints.")
flags.DEFINE_integer("batch_size", 128, "Rows among which the sentences are dealt.", 1)
flags.DEFINE_bool("stateless", False, "Start each sentence from zero state.")
flags.DEFINE_enum("start", "zero", ["zero", "checkpoint"], "The state that rows start from.")
flag_kinds.define_on_bad_utf8()
flags.register_multi_flags_validator(
    ["stateless", "start"],
    lambda f: not (f["stateless"] and f["start"] == "checkpoint"),
    "--stateless starts from zero state: leave out --start=checkpoint",
)


def main() -> None:
    from absl import logging

    from bilm.data.shards import resolve_shards
    from bilm.data.tokenization_check import check_tokenization
    from bilm.errors import BilmError
    from bilm.evaluation import heldout_dataset, perplexity
    from bilm.storage.checkpoint import load_run, load_state, run_vocabulary

    model = load_run(FLAGS.save_dir)
    vocab = run_vocabulary(FLAGS.save_dir, model, FLAGS.vocab_file)
    text = resolve_shards(FLAGS.test_prefix, FLAGS.on_bad_utf8)
    check_tokenization(text)
    state = None
    if FLAGS.start == "checkpoint":
        state, n_rows = load_state(FLAGS.save_dir, model)
        if n_rows != FLAGS.batch_size:
            raise BilmError(f"--batch_size={FLAGS.batch_size}: the checkpoint has {n_rows} rows")
    result = perplexity(
        model,
        heldout_dataset(text, vocab, model.options.bidirectional),
        FLAGS.batch_size,
        stateless=FLAGS.stateless,
        state=state,
        on_progress=lambda n: logging.log_every_n_seconds(
            logging.INFO, "%s predictions a direction so far", 5, f"{n:,}"
        ),
    )
    for name, value in result.directions.items():
        print(f"{name.upper()} PERPLEXITY = {value}")
    print(f"PREDICTIONS A DIRECTION = {result.n_predictions}")
    print(f"AVERAGE PERPLEXITY = {result.mean}")


if __name__ == "__main__":
    command.run(main, required=["test_prefix", "save_dir"])
