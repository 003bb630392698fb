#!/usr/bin/env python
"""Make a vocabulary from text: <S>, </S> and <UNK>, then words by falling frequency.

Examples:
  build_vocab.py --train_prefix 'corpus/*.txt' --outfile vocab.txt --min_count 3
  build_vocab.py --train_prefix 'corpus/*.gz' --outfile vocab.txt --max_size 800000 \\
      --counts_file counts.tsv --on_bad_utf8 replace

The text is UTF-8, one tokenized sentence a line, plain or gzip. Words of the same frequency are in
the order of their characters. A mark in the text is not counted as a word. --counts_file gets a
line for each word with a tab between it and its count. Memory is bounded by --words_in_memory:
with more distinct words, sorted counts wait in a folder beside --outfile that is removed at the
end. The files are written whole or not at all.
"""

from bilm.commands import command, flag_kinds
from bilm.commands.command import FLAGS, flags

flag_kinds.define_path("train_prefix", None, "Glob of the training shards.")
flag_kinds.define_path("outfile", None, "The vocabulary to write, one word a line.")
flag_kinds.define_path("counts_file", None, "Where to write each word and its count.")
flags.DEFINE_integer("min_count", 1, "Leave out words that occur less often.", 1)
flags.DEFINE_integer("max_size", None, "The most lines of the vocabulary, marks included [all].", 4)
flag_kinds.define_on_bad_utf8()
flags.DEFINE_integer("words_in_memory", 2_000_000, "The most distinct words held in memory.", 1)


def main() -> None:
    from bilm.data.shards import resolve_shards
    from bilm.data.tokenization_check import check_tokenization
    from bilm.data.vocabulary_builder import build_vocabulary

    check_tokenization(resolve_shards(FLAGS.train_prefix, FLAGS.on_bad_utf8))
    names = ("counts_file", "min_count", "max_size", "on_bad_utf8", "words_in_memory")
    found = build_vocabulary(
        FLAGS.train_prefix, FLAGS.outfile, **{name: FLAGS[name].value for name in names}
    )
    if found.n_marks:
        print(f"{found.n_marks:,} marks in the text were not counted as words")
    print(
        f"wrote {FLAGS.outfile}: {found.n_words:,} of {found.n_distinct:,} distinct words, "
        f"{100 * found.n_covered / found.n_tokens:.2f} % of {found.n_tokens:,} tokens"
    )


if __name__ == "__main__":
    command.run(main, required=["train_prefix", "outfile"], tensorflow=False)
