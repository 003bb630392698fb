#!/usr/bin/env python
"""Train `novels-en`, the model that is part of the package, and write its folder.

Example:
  python benchmarks/novels_en.py --run novels_run --output bilm/models/novels-en

The texts are classics_en and books_en of the shared data: English books, one tokenized sentence per
line. The run has two parts: classics_en and a third of books_en; then classics_en twice and a
quarter of books_en. The same command resumes an interrupted run. The output lacks only README.md.
"""

import json
import shutil
from collections import Counter
from pathlib import Path

import common
import h5py
import numpy as np
from absl import app, flags
from common import bilm

from bilm.data.text import read_lines
from bilm.data.vocabulary import MARKS
from bilm.options.run_options import load_run_options
from bilm.support.files import replacing

FLAGS = flags.FLAGS
flags.DEFINE_string("run", "novels_run", "Folder of the runs.")
flags.DEFINE_string("output", "novels-en", "Folder of the model.")
CHANGES = {"dropout": 0.05, "weight_decay": 0.05}
FOR_FINETUNING = "learning_rate", "warmup_steps", "state_reset_probability"
BITS = 10  # of the fractions of stored numbers, as in float16


def linked(folder: Path, books: list[Path]) -> Path:
    """Make a folder of links to the files of a text, some of them twice; return its pattern."""
    folder.mkdir(parents=True, exist_ok=True)
    for k, path in enumerate(books):
        if not (link := folder / f"{k}-{path.name}").exists():
            link.symlink_to(path.resolve())
    return folder / "*"


def words_of(books: list[Path]) -> list[str]:
    """Return the words that occur 8 times in all books or twice in classics_en, by count."""
    counts = Counter(
        word for path in books for _, line in read_lines(path) for word in line.split()
    )
    kept = {word for word, n in counts.items() if n >= 8}
    kept |= {line for _, line in read_lines(common.CLASSICS / "vocab.txt")}
    return [*MARKS, *sorted(kept - {*MARKS}, key=lambda word: (-counts[word], word))]


def shorten(path: Path) -> None:
    """Compress the arrays of a file; `W` of the softmax becomes float16, as precise as the rest."""
    with replacing(path) as part, h5py.File(path, "r") as whole, h5py.File(part, "w") as short:

        def copy(name: str, item: h5py.Group | h5py.Dataset) -> None:
            if isinstance(item, h5py.Dataset) and item.dtype != np.float32:
                whole.copy(name, short, name)
            elif isinstance(item, h5py.Dataset):
                low = np.uint32(1 << (23 - BITS))
                value = ((item[...].view(np.uint32) + low // 2) & ~(low - 1)).view(np.float32)
                value = value.astype(np.float16) if name.startswith("softmax") else value
                short.create_dataset(name, data=value, compression="gzip", shuffle=True)

        short.attrs.update(whole.attrs)
        whole.visititems(copy)


def main(_):
    run, output = Path(FLAGS.run), Path(FLAGS.output)
    books = sorted((common.CLASSICS.parent / "books_en").glob("*.gz"))
    classics = sorted((common.CLASSICS / "train").iterdir())
    vocab_file, options = run / "vocab.txt", run / "options.json"
    text = linked(run / "text", [*(books[k] for k in (2, 4, 5, 9)), *classics])
    last = linked(run / "last", [books[2], books[5], books[9], *classics, *classics])
    vocab_file.write_text("\n".join(words_of([*books, *classics])) + "\n", "utf-8")
    common.write_json(options, load_run_options("compact").replace(**CHANGES).to_dict())
    settings = "--heldout", common.CLASSICS / "dev.txt", "--precision", "bfloat16"
    bilm(
        "train", "--input", text, "--vocab", vocab_file, "--output", run / "first",
        "--options", options, "--n_steps", 20_143, "--eval_steps", 7_000, *settings,
    )  # fmt: skip
    bilm(
        "finetune", "--model", run / "first", "--input", last, "--output", run / "second",
        "--learning_rate", 0.0024, "--decay", "linear", "--n_steps", 4_500, *settings,
    )  # fmt: skip
    bilm("export", "--model", run / "second", "--output", output, "--include_softmax")
    shutil.copyfile(vocab_file, output / "vocab.txt")
    exported = json.loads((output / "options.json").read_text())
    first = {name: getattr(load_run_options("compact"), name) for name in FOR_FINETUNING}
    common.write_json(output / "options.json", exported | first)
    for path in sorted(output.glob("*.hdf5")):
        shorten(path)
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    app.run(main)
