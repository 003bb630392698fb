#!/usr/bin/env python
"""Train a small biLM on proteins and measure whether members of a family have similar vectors.

Example:
  apt install mmseqs2-examples  # Debian and Ubuntu: 20,000 proteins of UniProt, 6.5 MB
  python examples/proteins.py --output protein_run \\
      --fasta /usr/share/doc/mmseqs2/example-data/DB.fasta.gz

Each residue is a word and each protein a sentence. The name of a protein is the part of its UniProt
header between the id and OS=. A name that at least --family_size proteins share is a family. The
biLM is trained on the proteins outside the families. It then computes a mean vector for each family
member, and the program prints how often the nearest other protein has the same name. Counts of
amino acids and of amino-acid pairs are evaluated in the same way. Features are standardized, or
whitened, which also makes them uncorrelated.

After an interruption, the same command continues. The picture, a t-SNE of the largest families,
requires matplotlib and scikit-learn: pip install '.[plot,sklearn]'.
"""

from __future__ import annotations

import itertools
import re
from argparse import ArgumentParser, Namespace
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import running

import bilm
from bilm.data.text import read_lines
from bilm.data.vocabulary_builder import build_vocabulary
from bilm.options.schema import write as write_options
from bilm.support.files import replacing
from bilm.support.imports import needed

OPTIONS = {  # a residue is one letter, so filters wider than 1 are useless
    "bidirectional": True,
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 16},
        "filters": [[1, 64]],
        "max_characters_per_token": 50,
        "n_characters": 261,
        "n_highway": 0,
    },
    "lstm": {
        "dim": 256,
        "projection_dim": 64,
        "n_layers": 2,
        "cell_clip": 3,
        "proj_clip": 3,
        "use_skip_connections": True,
    },
    "dropout": 0.0,
    "all_clip_norm_val": 10.0,
    "optimizer": "adam",
    "learning_rate": 0.004,
    "warmup_steps": 100,
    "decay": "linear",
    "n_epochs": 1,
    "batch_size": 32,
    "unroll_steps": 50,
    "n_negative_samples_batch": 256,
    "sample_softmax": False,
    "state_reset_probability": 0.05,
}
NO_FAMILY = re.compile("uncharacterized|predicted|putative|hypothetical|polyprotein", re.IGNORECASE)
N_HELDOUT = 100  # proteins to measure perplexity on
N_DRAWN = 10  # families in the picture
RESIDUES = "ACDEFGHIKLMNPQRSTVWY"


def define_flags() -> ArgumentParser:
    flags = running.parser(__doc__)
    flags.add_argument("--fasta", required=True, help="proteins with UniProt headers, may be gzip")
    flags.add_argument("--output", default="protein_run", help="folder to write (%(default)s)")
    flags.add_argument("--model", help="stored biLM to embed with (default: train one)")
    flags.add_argument(
        "--family_size", type=int, default=25, help="minimum number of proteins with one name"
    )
    flags.add_argument(
        "--n_steps", type=int, default=600, help="training steps of 1,600 residues each"
    )
    flags.add_argument(
        "--layers", default="sum", help="all, top, average, sum, or layer numbers such as 0,2"
    )
    flags.add_argument("--png", default="families.png", help="picture to write, '' for none")
    return flags


class Protein(NamedTuple):
    """A FASTA record; `name` is the part of the header between the id and OS=."""

    id: str
    name: str
    residues: str


def main(args: Namespace) -> int | None:
    if args.png:  # fail before training, not after it
        with needed("plot,sklearn", "the picture"):
            import matplotlib  # noqa: F401
            import sklearn  # noqa: F401
    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    proteins = read_proteins(args.fasta)
    families = families_of(proteins, args.family_size)
    members = [protein for protein in proteins if protein.name in families]
    print(f"{len(proteins):,} proteins; {len(families)} families have {len(members):,} of them")
    model = args.model or train([p for p in proteins if p.name not in families], folder, args)
    if model is None:
        return running.INTERRUPTED

    fasta, vectors = folder / "families.fasta", folder / "families.hdf5"
    write_lines(fasta, (f">{p.id}\n{p.residues}" for p in members))
    bilm.dump_bilm_embeddings(None, fasta, model, None, vectors, layers=args.layers, pool="mean")
    of_model = np.stack([vector.ravel() for *_, vector in bilm.read_embeddings(vectors)])
    features = {
        "amino acids": shares(members, RESIDUES),
        "pairs of amino acids": shares(
            members, map("".join, itertools.product(RESIDUES, repeat=2))
        ),
        "biLM": of_model,
    }
    names = [protein.name for protein in members]
    print("the nearest other protein has the same name:")
    for what, values in features.items():
        shown = f"by {what} ({values.shape[1]} features)"
        scaled, white = (100 * accuracy(f(values), names) for f in (standardized, whitened))
        print(f"  {shown:<38} {scaled:.1f} %, whitened {white:.1f} %")
    if args.png:
        plot({what: features[what] for what in ("amino acids", "biLM")}, names, folder / args.png)
        print(f"wrote {folder / args.png}")


def read_proteins(path: str) -> list[Protein]:
    proteins, parts = [], []
    for _, line in [*read_lines(path), (0, ">")]:
        if line.startswith(">"):
            if parts:
                name = re.sub(r" (\(Fragments?\)|OS=.*|Split=.*)", "", parts[0]).partition(" ")[2]
                residues = "".join(parts[1:]).upper().removesuffix("*")
                proteins.append(Protein(parts[0].split()[0][1:], name, residues))
            parts = []
        parts.append(line)
    return proteins


def families_of(proteins: list[Protein], size: int) -> set[str]:
    """Return the names that at least `size` proteins share, and at least two names."""
    counts = Counter(p.name for p in proteins if p.name and not NO_FAMILY.search(p.name))
    families = {name for name, n in counts.items() if n >= size}
    if len(families) < 2:
        raise bilm.BilmError(
            f"{len(families)} names are shared by {size} proteins or more; at least two families "
            "are required. Lower --family_size, or use a file with UniProt headers"
        )
    return families


def train(proteins: list[Protein], folder: Path, args: Namespace) -> Path | None:
    """Train on proteins and export; return the model's folder, or None if it was interrupted."""
    if len(proteins) <= N_HELDOUT:
        raise bilm.BilmError(
            f"{args.fasta}: {len(proteins)} proteins are outside the families; training requires "
            f"more than {N_HELDOUT}. Raise --family_size, or pass --model"
        )
    text, heldout, vocab = (folder / f"{name}.txt" for name in ("train", "heldout", "vocab"))
    proteins = np.random.default_rng(0).permutation(np.array(proteins, object)).tolist()
    write_lines(heldout, (" ".join(residues) for *_, residues in proteins[:N_HELDOUT]))
    write_lines(text, (" ".join(residues) for *_, residues in proteins[N_HELDOUT:]))
    write_options(folder / "options.json", OPTIONS)
    build_vocabulary(text, vocab)
    result = bilm.train(
        text, folder / "run", options=folder / "options.json", vocab=vocab, heldout=heldout,
        n_steps=args.n_steps,
    )  # fmt: skip
    if not result.finished:
        return None
    print(f"held-out perplexity {result.heldout.mean:.2f}; by frequencies {unigram(proteins):.2f}")
    (folder / "model").mkdir(exist_ok=True)
    bilm.dump_weights(folder / "run", folder / "model" / "weights.hdf5")
    return folder / "model"


def unigram(proteins: list) -> float:
    """Return the held-out perplexity of residues and ends by their frequencies in training."""

    def counts(part):
        return Counter(itertools.chain(*(p[2] for p in part))) + Counter({"end": len(part)})

    training, heldout = counts(proteins[N_HELDOUT:]), counts(proteins[:N_HELDOUT])
    n, log_sum = training.total(), 0.0
    for residue, k in heldout.items():
        log_sum += k * np.log(max(training[residue], 1) / n)
    return float(np.exp(-log_sum / heldout.total()))


def shares(proteins: list[Protein], strings) -> np.ndarray:
    """Return the relative frequency of each string of residues in each protein."""
    strings = list(strings)
    counts = (Counter(windows(p.residues, len(strings[0]))) for p in proteins)
    values = np.array([[count[string] for string in strings] for count in counts], float)
    return values / np.maximum(values.sum(axis=1, keepdims=True), 1)


def windows(text: str, n: int) -> list[str]:
    return [text[i : i + n] for i in range(len(text) - n + 1)]


def standardized(values: np.ndarray) -> np.ndarray:
    return (values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-9)


def whitened(values: np.ndarray) -> np.ndarray:
    u, s, _ = np.linalg.svd(standardized(values), full_matrices=False)
    return u[:, s > 1e-4 * s[0]]


def accuracy(values: np.ndarray, names: list[str]) -> float:
    """Return the share of proteins whose nearest neighbour by cosine has the same name."""
    unit = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-9)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = cosines.argmax(axis=1)
    return float(np.mean([names[i] == name for i, name in zip(nearest, names, strict=True)]))


def plot(features: dict[str, np.ndarray], names: list[str], path: Path) -> None:
    """Draw the largest families in two dimensions, by each kind of features."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from sklearn.manifold import TSNE

    drawn = [name for name, _ in Counter(names).most_common(N_DRAWN)]
    rows = np.flatnonzero(np.isin(names, drawn))
    labels, perplexity = np.array(names)[rows], min(30, len(rows) // 4)
    figure, axes = pyplot.subplots(1, 2, figsize=(9.5, 4.6), layout="constrained")
    for axis, (what, values) in zip(axes, features.items(), strict=True):
        projection = TSNE(perplexity=perplexity, metric="cosine", init="random", random_state=0)
        points = projection.fit_transform(whitened(values)[rows])
        for name in drawn:
            axis.scatter(*points[labels == name].T, s=9, label=name[:32])
        axis.set(title=what, xticks=[], yticks=[])
    handles, texts = axes[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside lower center", ncols=3, fontsize=8, markerscale=2)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=75, format="png")
    pyplot.close(figure)


def write_lines(path: Path, lines) -> None:
    with replacing(path) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    running.run(main, define_flags())
