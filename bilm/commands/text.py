"""Write a corpus as text: one sentence per line, with blanks between words.

Examples:
  bilm text --input reviews.csv --column text --tokenize en --output reviews.txt
  bilm text --input en_ewt-ud-train.conllu --output train.txt

--input is a table (.csv .tsv .jsonl .parquet), .conllu, FASTA or text, as for bilm embed. Each row,
sentence or line becomes one line, an empty one too. A word of a list or of CoNLL-U that holds
blanks becomes several, and the log says so. bilm vocab, train, finetune, test, score and embed read
what is written. --tokenize needs the extra spacy, Parquet the extra parquet.
"""

from __future__ import annotations

from argparse import Namespace

from bilm.commands.flags import Flags
from bilm.commands.results import define_json, show
from bilm.commands.text_flags import define_corpus, define_on_bad_utf8

TENSORFLOW = False


def define_flags(flags: Flags) -> None:
    flags.group("files")
    flags.path("input", "The corpus.", required=True)
    flags.path("output", "The text to write.", required=True)
    define_on_bad_utf8(flags)
    define_corpus(flags)
    define_json(flags)


def main(args: Namespace) -> None:
    from absl import logging

    from bilm.data.records import Corpus
    from bilm.files import keep_inputs, replacing
    from bilm.process import quiet
    from bilm.progress import progress

    keep_inputs(args.output, args.input)
    if args.tokenize:
        quiet()  # spaCy imports TensorFlow
    corpus = Corpus(
        args.input,
        args.column,
        tokenize=args.tokenize,
        on_bad_utf8=args.on_bad_utf8,
    )
    n_words = n_changed = 0
    with (
        replacing(args.output) as temporary,
        open(temporary, "w", encoding="utf-8", newline="\n") as file,
        progress("writing", "sentences") as shown,
    ):
        for record in corpus:
            words = " ".join(record.words).split()  # as whoever reads the text will find them
            n_words += len(words)
            n_changed += words != record.words
            file.write(" ".join(words) + "\n")
            shown.add(1)
    if n_changed:
        logging.warning(
            "%s: in %s sentences a word is empty or holds blanks; text splits words at blanks, so "
            "these sentences have other words there", args.output, f"{n_changed:,}",
        )  # fmt: skip
    found = {"output": args.output, "sentences": shown.done, "words": n_words}
    text = f"wrote {args.output}: {shown.done:,} sentences, {n_words:,} words"
    show(args, found, text)
