"""Make a vocabulary from text: <S>, </S> and <UNK>, then words by falling frequency.

Examples:
  bilm vocab --input 'corpus/*.txt' --output vocab.txt --min_count 3
  bilm vocab --input 'corpus/*.gz' --output vocab.txt --max_size 800000 --counts counts.tsv

The text is UTF-8, one tokenized sentence per line, plain or gzip. Words of the same frequency are
in the order of their characters. A mark in the text is not counted as a word. Each line of --counts
is a word, a tab and its count. With more distinct words than --words_in_memory, sorted counts are
kept in a folder beside --output, which is removed at the end. The files are written whole or not at
all.
"""

from __future__ import annotations

from argparse import Namespace

from bilm.commands.flags import Flags
from bilm.commands.results import define_json, show
from bilm.commands.text_flags import define_on_bad_utf8

TENSORFLOW = False


def define_flags(flags: Flags) -> None:
    flags.group("files")
    flags.path("input", "Glob of the text.", "GLOB", required=True, old=["train_prefix"])
    flags.path(
        "output", "The vocabulary to write, one word per line.", required=True, old=["outfile"]
    )
    flags.path("counts", "Where to write each word and its count.", old=["counts_file"])
    define_on_bad_utf8(flags)
    flags.group("words")
    flags.integer("min_count", "Leave out words that occur less often.", 1, default=1)
    flags.integer("max_size", "The most lines of the vocabulary, marks included [all].", 4)
    flags.integer(
        "words_in_memory", "The most distinct words held in memory.", 1, default=2_000_000
    )
    define_json(flags)


def main(args: Namespace) -> None:
    from bilm.data.shards import resolve_shards
    from bilm.data.tokenization_check import check_tokenization
    from bilm.data.vocabulary_builder import build_vocabulary

    check_tokenization(resolve_shards(args.input, args.on_bad_utf8))
    found = build_vocabulary(
        args.input,
        args.output,
        args.counts,
        min_count=args.min_count,
        max_size=args.max_size,
        on_bad_utf8=args.on_bad_utf8,
        words_in_memory=args.words_in_memory,
    )
    lines = [
        f"wrote {args.output}: {found.n_words:,} of {found.n_distinct:,} distinct words, "
        f"{100 * found.n_covered / found.n_tokens:.2f} % of {found.n_tokens:,} tokens"
    ]
    if found.n_marks:
        lines.insert(0, f"{found.n_marks:,} marks in the text were not counted as words")
    figures = {name.removeprefix("n_"): n for name, n in found._asdict().items()}
    show(args, {"output": args.output, **figures}, "\n".join(lines))
