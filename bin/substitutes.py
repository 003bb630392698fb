#!/usr/bin/env python
"""Give the most likely words in a place of a sentence, by a biLM with its full softmax.

Examples:
  substitutes.py --save_dir run --vocab_file run/vocab.txt \\
      --sentence "The bank closed early ." --position 1
  substitutes.py --options_file elmo/options.json --weight_file elmo/weights.hdf5 \\
      --sentence "She sat on the [?] of the river ." --position 4 --n 20

The model is a run's folder, of train_elmo.py or of the TensorFlow 1 reference, or what
dump_weights.py --include_softmax writes. --sentence holds tokens with blanks between them;
--position is that of one of them, from 0, and whatever stands there is not looked at. A column
`forward` is given what is left of the place, `backward` what is right of it, each with
log-probabilities in nats; `both` ranks by the product of the two probabilities, and its numbers are
the sums of the two.
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
flags.DEFINE_string("sentence", None, "Tokens with blanks between them.")
flags.DEFINE_integer("position", None, "Which of the tokens, from 0.")
flags.DEFINE_integer("n", 10, "How many words a column.", 1)


def table(found) -> str:
    columns = []
    for name, words in found._asdict().items():
        if words is not None:
            width = max(map(len, [name, *(word for word, _ in words)]))
            cells = [f"{word:<{width}} {value:>8.3f}" for word, value in words]
            columns.append([f"{name:<{width + 9}}", *cells])
    return "\n".join("   ".join(row).rstrip() for row in zip(*columns, strict=True))


def main() -> None:
    from bilm.ask import load_scorer

    files = ("save_dir", "vocab_file", "options_file", "weight_file", "softmax_file")
    words = flag_kinds.text_of("sentence").split()
    scorer = load_scorer(**{name: FLAGS[name].value for name in files})
    print(table(scorer.substitutes(words, FLAGS.position, FLAGS.n)))


if __name__ == "__main__":
    command.run(main, required=["sentence", "position"])
