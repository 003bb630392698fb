#!/usr/bin/env python
"""Find the most similar usages of one word in several sentences, as text and as a picture.

Example:
  python examples/polysemy.py
  python examples/polysemy.py --word spring --sentence "He came up to town in the spring ." \\
      --sentence "The dog made a sudden spring at him ."

Each sentence must contain the word; its first occurrence is used. Requires the extra analysis.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

import running

import bilm
from bilm.studies.usages import collect_usages, draw_map

SENTENCES = [
    "He left the house at once .",
    "She left the room without a word .",
    "He held the letter in his left hand .",
    "She turned to the left side of the road .",
    "He had no money left .",
    "There is no hope left for us .",
]


def define_flags() -> ArgumentParser:
    flags = running.parser(__doc__)
    running.add_model(flags)
    flags.add_argument("--word", default="left", help="word to compare")
    flags.add_argument(
        "--sentence", action="append", help="tokenized sentence; repeat the flag for several"
    )
    flags.add_argument(
        "--layer", type=int, default=-1, help="layer: 0 is the context-free vector, -1 the last"
    )
    flags.add_argument("--n", type=int, default=3, help="similar usages to print")
    flags.add_argument("--png", default="polysemy.png", help="picture to write, '' for none")
    return flags


def main(args: Namespace) -> None:
    from bilm.storage.stored_model import open_model  # --help does not load TensorFlow

    texts = args.sentence or SENTENCES
    for text in texts:
        if args.word not in text.split():
            raise bilm.BilmError(f"'{args.word}' is not in the sentence: {text}")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "sentences.txt"
        file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        model = open_model(args.model, args.weights)
        usages = collect_usages(model, [args.word], {"sentences": file}, sample=None)
    usages = usages.where(~usages.frame["line"].duplicated())  # the first one in each sentence
    layer = usages.layers[args.layer]
    for row, text in enumerate(texts):
        print(text)
        for near in usages.nearest(row, args.n, layer).itertuples():
            print(f"  {near.similarity:5.2f}  {near.sentence}")
    if args.png:
        draw_map(usages, args.png, layer)
        print(f"wrote {args.png}")


if __name__ == "__main__":
    running.run(main, define_flags())
