#!/usr/bin/env python
"""What fine-tuning gains over the source model, and over training on the new text alone.

Examples:
  python benchmarks/finetuning.py --source run
  python benchmarks/finetuning.py --source run --data pos --vocabularies source --max_epochs 20

--source is the folder of a run of `bilm train` with its vocab.txt, such as one on classics_en.
--data holds train.tsv and dev.tsv, with a token first on each line and a blank line between
sentences; the default is UD English EWT, en_ewt_pos of the shared data.

Perplexity is measured on dev.tsv (full softmax, from zero state) for three models: the source, the
source tuned on train.tsv, and a model of the same shape trained on train.tsv alone. The last two
are measured after each epoch, until another epoch no longer helps. This is done with the source's
vocabulary, and with the words that occur --min_count times in train.tsv. Fewer words are easier to
predict, so compare figures within one vocabulary only.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import common
from absl import app, flags, logging

from bilm.data.text import read_lines
from bilm.data.vocabulary import MARKS
from bilm.evaluation import Perplexity
from bilm.storage.checkpoint import VOCABULARY
from bilm.training.finetuning import finetune
from bilm.training.run import TrainingRun
from bilm.training.starting_point import Source

FLAGS = flags.FLAGS
flags.DEFINE_string("source", None, "Folder of the run to start from.", required=True)
flags.DEFINE_string("data", str(common.CLASSICS.parent / "en_ewt_pos"), "train.tsv and dev.tsv.")
flags.DEFINE_multi_enum(
    "vocabularies", ["source", "own"], ["source", "own"], "Which words are predicted."
)
flags.DEFINE_integer("min_count", 2, "Least count in train.tsv of a word in the own vocabulary.", 1)
flags.DEFINE_integer("max_epochs", 12, "Most epochs per run.", 1)
flags.DEFINE_float("learning_rate", None, "Learning rate of the tuned model [that of finetune.py].")
flags.DEFINE_string("save_dir", None, "New folder that keeps text and runs [none].")
flags.DEFINE_string("json", None, "JSON file for the figures.")


def write_sentences(tsv: Path, path: Path) -> Counter:
    """Write the first column as one sentence per line; return the count of each word."""
    sentences, words = [], []
    for _, line in read_lines(tsv):
        if line:
            words.append(line.split("\t")[0])
        elif words:
            sentences.append(words)
            words = []
    sentences += [words] if words else []
    path.write_text("".join(f"{' '.join(s)}\n" for s in sentences), encoding="utf-8")
    return Counter(word for sentence in sentences for word in sentence)


def own_vocabulary(counts: Counter, path: Path) -> Path:
    words = [word for word, n in counts.most_common() if n >= FLAGS.min_count]
    path.write_text("\n".join([*MARKS, *words]) + "\n", encoding="utf-8")
    return path


def epochs(label: str, train_until: Callable[[int], Perplexity]) -> list[float]:
    """Train until an epoch no longer helps; print and return the perplexity after each epoch."""
    found = []
    while len(found) < FLAGS.max_epochs and (len(found) < 2 or found[-1] < found[-2]):
        found.append(train_until(len(found) + 1).mean)
        print(f"{label}, epoch {len(found):>2}: {found[-1]:>8,.1f}", flush=True)
    return found


def check_finished(finished: bool) -> None:
    if not finished:
        sys.exit("interrupted")


def compare(vocab_file: Path, is_new: bool, text: common.Text, runs: Path) -> dict:
    before = []
    changes = {} if FLAGS.learning_rate is None else {"learning_rate": FLAGS.learning_rate}

    def tune(n_epochs):
        result = finetune(
            FLAGS.source, text.train, runs / "tuned", heldout_prefix=text.heldout,
            new_vocab_file=vocab_file if is_new else None, changes=changes | {"n_epochs": n_epochs},
        )  # fmt: skip
        check_finished(result.finished)
        before[:] = [result.before.mean]
        return result.after

    def train_alone(n_epochs):
        # A new run uses the learning rate of the source.
        source = Source(FLAGS.source)
        rate = source.options.other.get("learning_rate", 0.2)
        options = source.run_options({"n_epochs": n_epochs, "learning_rate": rate})
        folder = str(runs / "alone")
        result = TrainingRun(options, vocab_file, text.train, folder, text.heldout).train()
        check_finished(result.finished)
        return result.heldout

    tuned = epochs("tuned", tune)
    alone = epochs("alone", train_alone)
    return {"before": before[0], "tuned": tuned, "alone": alone}


def main(argv):
    del argv
    logging.set_verbosity(logging.ERROR)
    data, source = Path(FLAGS.data), Path(FLAGS.source)
    for path in (source / VOCABULARY, data / "train.tsv", data / "dev.tsv"):
        if not path.is_file():
            sys.exit(f"{path}: no such file; --help says what --source and --data hold")
    if FLAGS.save_dir and Path(FLAGS.save_dir).exists():
        sys.exit(f"{FLAGS.save_dir}: already exists; choose a new folder")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(FLAGS.save_dir or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        counts = write_sentences(data / "train.tsv", folder / "train.txt")
        write_sentences(data / "dev.tsv", folder / "dev.txt")
        vocabularies = {
            "source": source / VOCABULARY,
            "own": own_vocabulary(counts, folder / "own_words.txt"),
        }
        text = common.Text(str(folder / "train.txt"), "", str(folder / "dev.txt"))
        figures = {}
        for name in FLAGS.vocabularies:
            path = vocabularies[name]
            n_words = len(path.read_text(encoding="utf-8").splitlines())
            print(f"vocabulary: {name}, {n_words:,} words")
            found = compare(path, name == "own", text, folder / name)
            figures[name] = {"n_words": n_words, **found}
            print(f"before: {found['before']:,.1f}")
            for run in ("tuned", "alone"):
                first, best = found[run][0], min(found[run])
                where = found[run].index(best) + 1
                print(f"{run}: {first:,.1f} after one epoch, {best:,.1f} at best (epoch {where})")
            common.write_json(FLAGS.json, figures)


if __name__ == "__main__":
    app.run(main)
