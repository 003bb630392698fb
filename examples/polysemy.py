#!/usr/bin/env python
"""One word in several sentences: how alike its vectors are, printed and as a picture.

Example:
  python examples/polysemy.py --word bank \\
      --sentence "He sat on the bank of the river ." \\
      --sentence "The bank lent him the money ." --sentence "She swam back to the bank ."

Each sentence holds the word once or more; its first place is taken. The picture needs matplotlib.
"""

import sys
from argparse import Namespace

import numpy as np

import bilm
from bilm.commands import command
from bilm.commands.flags import Flags

SENTENCES = [
    "He sat down on the bank of the river .",
    "They walked along the bank and looked at the water .",
    "The bank lent him the money .",
    "He had no money left in the bank .",
]


def define_flags(flags: Flags) -> None:
    flags.group("flags")
    flags.path("model", "A stored biLM.", "MODEL", default="novels-en", old=["options_file"])
    flags.path("weights", "HDF5 weights, where MODEL is options.json.", old=["weight_file"])
    flags.text("word", "The word to look at.", "WORD", default="bank")
    flags.text("sentence", "A tokenized sentence; give several.", default=SENTENCES, many=True)
    flags.integer("layer", "Which layer: 0 is the token's own vector, -1 the last.", default=-1)
    flags.text("png", "The picture to write; empty for none.", "FILE", default="polysemy.png")


def plot(similarities: np.ndarray, labels: list[str], word: str, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 6), layout="constrained")
    image = axes.imshow(similarities, vmin=min(0.0, similarities.min()), vmax=1.0, cmap="viridis")
    axes.set_xticks(range(len(labels)), [str(i + 1) for i in range(len(labels))])
    axes.set_yticks(range(len(labels)), labels)
    for (i, j), value in np.ndenumerate(similarities):
        axes.text(j, i, f"{value:.2f}", ha="center", va="center", color="white")
    axes.set_title(f"cosine of the vectors of '{word}'")
    figure.colorbar(image, shrink=0.7)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(args: Namespace) -> None:
    sentences = [sentence.split() for sentence in args.sentence]
    for words in sentences:
        if args.word not in words:
            raise bilm.BilmError(f"'{args.word}' is not in the sentence: {' '.join(words)}")
    embedder = bilm.ElmoEmbedder(args.model, args.weights)
    arrays = embedder.embed_batch(sentences)
    pairs = zip(arrays, sentences, strict=True)
    vectors = np.stack([a[args.layer, words.index(args.word)] for a, words in pairs])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    similarities = vectors @ vectors.T
    labels = [f"{i + 1}  {sentence}" for i, sentence in enumerate(args.sentence)]
    for label, row in zip(labels, similarities, strict=True):
        print("  ".join(f"{value:5.2f}" for value in row), " ", label)
    if args.png:
        plot(similarities, labels, args.word, args.png)
        print(f"wrote {args.png}")


if __name__ == "__main__":
    command.run_script(sys.modules[__name__])
