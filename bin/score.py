#!/usr/bin/env python
"""Give the log-probabilities of sentences, in nats, by a biLM with its full softmax.

Examples:
  score.py --save_dir run --vocab_file run/vocab.txt --input dev.txt > dev.tsv
  echo "The bank closed ." | score.py --save_dir run --per_token
  score.py --options_file elmo/options.json --weight_file elmo/weights.hdf5 --input dev.txt

The model is a run's folder, of train_elmo.py or of the TensorFlow 1 reference, or what
dump_weights.py --include_softmax writes. --input holds a tokenized sentence a line; blank lines are
passed over. Each sentence starts from zero state and gives a line with tabs between
  forward  backward  mean  predictions  sentence
the first two being its log-probability by direction, the third that of a prediction on average, the
fourth how many predictions a direction made, one more than it has words. --per_token gives a line
  forward  backward  token
for each token and mark in its place, and a blank line after the sentence. nan stands where there
is nothing: for the mark that a direction starts from, and backward in a forward-only model.
The last line is AVERAGE PERPLEXITY = <number>, that of run_test.py --stateless on the same text.
"""

from bilm.commands import command, flag_kinds
from bilm.commands.command import FLAGS, flags

flag_kinds.define_path("save_dir", None, "Folder with options.json and checkpoints.")
flag_kinds.define_path(
    "vocab_file", None, "The run's vocabulary; vocab.txt in the folder if absent."
)
flag_kinds.define_path("options_file", None, "options.json of an export.")
flag_kinds.define_path("weight_file", None, "HDF5 weights of an export.")
flag_kinds.define_path("softmax_file", None, "Its softmax; <stem>_softmax.hdf5 if absent.")
flag_kinds.define_path("input", "-", "The text, plain or gzip, a glob; - for standard input.")
flag_kinds.define_on_bad_utf8()
flags.DEFINE_bool("per_token", False, "A line for each token.")


def sentence_lines(words, found) -> str:
    totals = (found.total.get(name, float("nan")) for name in ("forward", "backward"))
    numbers = "\t".join(f"{value:.6f}" for value in (*totals, found.mean))
    return f"{numbers}\t{found.n_predictions}\t{' '.join(words)}"


def token_lines(words, found) -> str:
    nan = float("nan")
    backward = [nan] * len(found.forward) if found.backward is None else found.backward
    rows = zip([nan, *found.forward], [*backward, nan], ["<S>", *words, "</S>"], strict=True)
    return "".join(f"{f:.6f}\t{b:.6f}\t{word}\n" for f, b, word in rows)


def main() -> None:
    from itertools import tee

    from bilm.ask import load_scorer
    from bilm.data.shards import Shards, resolve_shards
    from bilm.data.text import STANDARD_INPUT
    from bilm.data.tokenization_check import watched
    from bilm.scores import perplexity_of_scores

    files = ("save_dir", "vocab_file", "options_file", "weight_file", "softmax_file")
    how, piped = FLAGS.on_bad_utf8, FLAGS.input == "-"
    shards = Shards([STANDARD_INPUT], how) if piped else resolve_shards(FLAGS.input, how)
    scorer = load_scorer(**{name: FLAGS[name].value for name in files})
    lines = token_lines if FLAGS.per_token else sentence_lines

    def printed():
        sentences, again = tee(watched(shards.sentences(), FLAGS.input, scorer.words))
        for words, found in zip(sentences, scorer.score(again), strict=True):
            print(lines(words, found))
            yield found

    print(f"AVERAGE PERPLEXITY = {perplexity_of_scores(printed()).mean}")


if __name__ == "__main__":
    command.run(main)
