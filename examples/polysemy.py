#!/usr/bin/env python
"""One word in several sentences: how alike its vectors are, printed and as a picture.

Example:
  python examples/polysemy.py --options_file elmo/options.json --weight_file elmo/weights.hdf5 \\
      --word bank --sentence "He sat on the bank of the river ." \\
      --sentence "The bank lent him the money ." --sentence "She swam back to the bank ."

Each sentence holds the word once or more; its first place is taken. The picture needs matplotlib.
"""

import numpy as np

import bilm
from bilm.commands import command, flag_kinds
from bilm.commands.command import FLAGS, flags

flag_kinds.define_path("options_file", None, "The biLM's options, or what stands for both files.")
flag_kinds.define_path("weight_file", None, "The biLM's weights.")
flags.DEFINE_string("word", "bank", "The word to look at.")
flags.DEFINE_multi_string(
    "sentence",
    [
        "He sat down on the bank of the river .",
        "They walked along the bank and looked at the water .",
        "The bank lent him the money .",
        "He had no money left in the bank .",
    ],
    "A tokenized sentence; give several.",
)
flags.DEFINE_integer("layer", -1, "Which layer, 0 being the token's own vector, -1 the last.")
flags.DEFINE_string("png", "polysemy.png", "The picture to write; empty for none.")


def plot(similarities: np.ndarray, labels: list[str], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 6), layout="constrained")
    image = axes.imshow(similarities, vmin=min(0.0, similarities.min()), vmax=1.0, cmap="viridis")
    axes.set_xticks(range(len(labels)), [str(i + 1) for i in range(len(labels))])
    axes.set_yticks(range(len(labels)), labels)
    for (i, j), value in np.ndenumerate(similarities):
        axes.text(j, i, f"{value:.2f}", ha="center", va="center", color="white")
    axes.set_title(f"cosine of the vectors of '{FLAGS.word}'")
    figure.colorbar(image, shrink=0.7)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    sentences = [sentence.split() for sentence in FLAGS.sentence]
    for words in sentences:
        if FLAGS.word not in words:
            raise bilm.BilmError(f"'{FLAGS.word}' is not in the sentence: {' '.join(words)}")
    embedder = bilm.ElmoEmbedder(FLAGS.options_file, FLAGS.weight_file)
    arrays = embedder.embed_batch(sentences)
    pairs = zip(arrays, sentences, strict=True)
    vectors = np.stack([a[FLAGS.layer, words.index(FLAGS.word)] for a, words in pairs])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    similarities = vectors @ vectors.T
    labels = [f"{i + 1}  {sentence}" for i, sentence in enumerate(FLAGS.sentence)]
    for label, row in zip(labels, similarities, strict=True):
        print("  ".join(f"{value:5.2f}" for value in row), " ", label)
    if FLAGS.png:
        plot(similarities, labels, FLAGS.png)
        print(f"wrote {FLAGS.png}")


if __name__ == "__main__":
    command.run(main, required=["options_file"])
