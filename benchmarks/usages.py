#!/usr/bin/env python
"""Time, peak memory and disk space of `bilm usages` on a text of a given size.

Examples:
  python benchmarks/usages.py                                # 5 million tokens, 200 words
  python benchmarks/usages.py --sample 0 --dtype float16     # all usages
  python benchmarks/usages.py --tokens 100000 --words 20 --json usages.json

The text repeats the sentences of classics_en (Python's documentation if it is missing) and is
divided into two groupings. The words have the ranks 100, 104, 108, ... of the vocabulary by
frequency; marks without letters or digits are left out. The command runs in a separate process.
Peak memory is the maximum resident set size.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path

import common
from absl import app, flags

from bilm.data.shards import matching_files
from bilm.data.vocabulary import MARKS

FLAGS = flags.FLAGS
flags.DEFINE_string("model", "novels-en", "Model that computes the vectors.")
flags.DEFINE_integer("tokens", 5_000_000, "Number of tokens of the text.", 1)
flags.DEFINE_integer("words", 200, "Number of words.", 1)
flags.DEFINE_integer("sample", 1000, "Maximum number of usages per word and grouping; 0: all.", 0)
flags.DEFINE_enum("dtype", "float32", ["float32", "float16"], "dtype of the stored vectors.")
flags.DEFINE_string("json", None, "File for the figures.")

FIRST_RANK, STEP = 100, 4


def write_texts(folder: Path, train: str, n_tokens: int) -> list[Path]:
    """Write two texts with half of the tokens each; return them."""
    lines = (
        line
        for path in cycle(matching_files(train))
        for line in Path(path).read_text(encoding="utf-8").splitlines()
        if line.split()
    )
    paths = [folder / "first.txt", folder / "second.txt"]
    for path in paths:
        n_written = 0
        with path.open("w", encoding="utf-8") as file:
            while n_written < n_tokens // 2:
                line = next(lines)
                file.write(line + "\n")
                n_written += len(line.split())
    return paths


def write_words(path: Path, vocab_file: str, n_words: int) -> None:
    """Write words of evenly spaced ranks."""
    known = Path(vocab_file).read_text(encoding="utf-8").split()[len(MARKS) :]
    words = [word for word in known[FIRST_RANK::STEP] if re.fullmatch(r"\w+", word)][:n_words]
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")


def main(argv):
    del argv
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = common.corpus(folder)
        texts = write_texts(folder, text.train, FLAGS.tokens)
        write_words(folder / "words.lst", text.vocab_file, FLAGS.words)
        output = folder / "out.usages.parquet"
        command = [
            sys.executable, "-m", "bilm", "usages", f"--model={FLAGS.model}",
            f"--words={folder}/words.lst", *(f"--input={path}" for path in texts),
            f"--output={output}", f"--sample={FLAGS.sample}", f"--dtype={FLAGS.dtype}",
        ]  # fmt: skip
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise RuntimeError(f"bilm usages: status {status}")
        seconds = time.perf_counter() - start
        n_usages = int(re.search(r"([\d,]+) usages", printed)[1].replace(",", ""))
        values = {
            "seconds": seconds,
            "peak_memory_mb": usage.ru_maxrss / 1024,
            "disk_mb": output.stat().st_size / 1e6,
            "usages": n_usages,
            "usages_per_s": n_usages / seconds,
        }
        title = f"{FLAGS.tokens:,} tokens, {FLAGS.words} words, {FLAGS.model}, {FLAGS.dtype}"
        common.report(title, values, FLAGS.json)


if __name__ == "__main__":
    app.run(main)
