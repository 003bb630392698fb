#!/usr/bin/env python
"""Compare the vectors of one word in several sentences, as numbers and as a picture.

Example:
  python examples/polysemy.py
  python examples/polysemy.py --word spring --sentence "He came up to town in the spring ." \\
      --sentence "The dog made a sudden spring at him ."

Each sentence must contain the word; its first occurrence is used. The picture requires matplotlib.
"""

from argparse import ArgumentParser, Namespace

import numpy as np
import running

import bilm

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
    flags.add_argument("--png", default="polysemy.png", help="picture to write, '' for none")
    return flags


def plot(similarities: np.ndarray, labels: list[str], word: str, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 0.55 * len(labels) + 0.8), layout="constrained")
    lowest = min(0.0, similarities.min())
    image = axes.imshow(similarities, vmin=lowest, vmax=1.0, cmap="Blues", aspect="auto")
    axes.set_xticks(range(len(labels)), [str(i + 1) for i in range(len(labels))])
    axes.set_yticks(range(len(labels)), labels)
    for (i, j), value in np.ndenumerate(similarities):
        color = "white" if value > 0.6 else "black"
        axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=color)
    axes.set_title(f"cosine similarity of the vectors of '{word}'")
    figure.colorbar(image)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def main(args: Namespace) -> None:
    texts = args.sentence or SENTENCES
    sentences = [text.split() for text in texts]
    for words in sentences:
        if args.word not in words:
            raise bilm.BilmError(f"'{args.word}' is not in the sentence: {' '.join(words)}")
    embedder = bilm.ElmoEmbedder(args.model, args.weights)
    arrays = embedder.embed_batch(sentences)
    pairs = zip(arrays, sentences, strict=True)
    vectors = np.stack([a[args.layer, words.index(args.word)] for a, words in pairs])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    similarities = vectors @ vectors.T
    labels = [f"{i + 1}  {text}" for i, text in enumerate(texts)]
    for label, row in zip(labels, similarities, strict=True):
        print("  ".join(f"{value:5.2f}" for value in row), " ", label)
    if args.png:
        plot(similarities, labels, args.word, args.png)
        print(f"wrote {args.png}")


if __name__ == "__main__":
    running.run(main, define_flags())
