#!/usr/bin/env python
"""Held-out perplexity over training steps, for several training recipes.

Examples:
  python benchmarks/time_to_perplexity.py --csv recipes.csv
  python benchmarks/time_to_perplexity.py --n_steps 500 --recipe 'adagrad:' \\
      --recipe 'adam:optimizer=adam,learning_rate=0.004,warmup_steps=100' --plot recipes.png
  python benchmarks/time_to_perplexity.py --options small --input 'corpus/*.txt' \\
      --vocab vocab.txt --heldout dev.txt --output runs

  python benchmarks/time_to_perplexity.py --options compact --n_steps 744 --eval_steps 62 \\
      --recipe 'none:dropout=0' --recipe 'dropout:dropout=0.5' --losses losses.png

A recipe is a name and keys of options.json that replace keys of --options. Each recipe is one run
of `bilm train`; with --output, the same command resumes interrupted runs. The default text is
classics_en of the shared data, or Python's documentation if that is missing. --plot and --losses
require matplotlib.
"""

import csv
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import common
from absl import app, flags

from bilm.errors import BilmError
from bilm.options.run_options import RunOptions, load_run_options
from bilm.training.history import read_history

RECIPES = (
    "adagrad:",
    "adam:optimizer=adam,learning_rate=0.004,warmup_steps=100,decay=linear,decay_start=0.33",
)
EVALUATION = re.compile(r"step (\d+) of .*: held-out perplexity ([\d.]+)")

TEXTS = ("input", "vocab", "heldout")

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("recipe", RECIPES, "Name, colon, comma-separated key=value pairs.")
flags.DEFINE_string("options", None, "Name or path [512/128, 64 x 20, 1,024 negatives].")
flags.DEFINE_string("input", None, "Training text [classics_en].")
flags.DEFINE_string("vocab", None, "Vocabulary of the text.")
flags.DEFINE_string("heldout", None, "Held-out text.")
flags.DEFINE_integer("n_steps", 1500, "Steps of each run.", 1)
flags.DEFINE_integer("eval_steps", 250, "Steps between evaluations.", 1)
flags.DEFINE_integer("seed", 0, "Seed of each run.")
flags.DEFINE_enum("precision", "float32", ("float32", "bfloat16"), "Precision of products.")
flags.DEFINE_integer("cpu_replicas", 1, "Number of logical CPU devices.", 1)
flags.DEFINE_string("output", None, "Folder for the runs [a temporary folder].")
flags.DEFINE_string("csv", None, "CSV file for the figures.")
flags.DEFINE_string("plot", None, "PNG file for a plot of perplexity over steps.")
flags.DEFINE_string("losses", None, "PNG file for training and held-out losses over epochs.")


def measure(name: str, options: RunOptions, text: common.Text, folder: Path) -> list[dict]:
    """Train; return the step and perplexity of each evaluation."""
    options_file = folder / f"{name}.json"
    options_file.write_text(json.dumps(options.to_dict()))
    command = [
        sys.executable, "-m", "bilm", "train", f"--input={text.train}",
        f"--vocab={text.vocab_file}", f"--heldout={text.heldout}",
        f"--options={options_file}", f"--output={folder / name}",
        f"--n_steps={FLAGS.n_steps}", f"--eval_steps={FLAGS.eval_steps}", f"--seed={FLAGS.seed}",
        f"--precision={FLAGS.precision}", f"--cpu_replicas={FLAGS.cpu_replicas}",
    ]  # fmt: skip
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    found = EVALUATION.findall(done.stderr.replace(",", ""))
    return [{"recipe": name, "step": int(step), "mean": float(mean)} for step, mean in found]


def plot(rows: list[dict], path: str) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter

    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    for name in dict.fromkeys(row["recipe"] for row in rows):
        own = [row for row in rows if row["recipe"] == name]
        axes.plot([row["step"] for row in own], [row["mean"] for row in own], "o-", label=name)
    axes.set(xlabel="steps", ylabel="held-out perplexity", yscale="log")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(ScalarFormatter())
    axes.legend()
    figure.savefig(path)


def plot_losses(folder: Path, names: list[str], path: str) -> None:
    """Plot training and held-out losses of bidirectional runs, the mean of both directions.

    The length of each run must be a number of whole epochs.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for k, name in enumerate(names):
        rows = read_history(folder / name / "history.csv")
        epochs = int(rows[-1]["epoch"]) / int(rows[-1]["step"])
        trained = [
            (int(r["step"]), float(r["loss_forward"]), float(r["loss_backward"]))
            for r in rows if r["loss_forward"]
        ]  # fmt: skip
        measured = [
            (int(r["step"]), math.log(float(r["heldout_perplexity"])))
            for r in rows if r["heldout_perplexity"]
        ]  # fmt: skip
        color = f"C{k}"
        axes.plot([r[0] * epochs for r in measured], [r[1] for r in measured], "o-", color=color,
                  markersize=3, label=f"{name}, held-out")  # fmt: skip
        axes.plot([r[0] * epochs for r in trained], [(r[1] + r[2]) / 2 for r in trained], "--",
                  color=color, linewidth=1, label=f"{name}, training")  # fmt: skip
    axes.set(xlabel="epochs", ylabel="loss, nats per word")
    axes.legend(fontsize="small")
    figure.savefig(path)


def main(argv):
    del argv
    if len({bool(FLAGS[name].value) for name in TEXTS}) > 1:
        sys.exit("expected all of --input, --vocab and --heldout, or none of them")
    default = RunOptions.from_dict(common.MIDDLE | {"state_reset_probability": 0.01})
    recipes, rows = [], []
    try:
        options = load_run_options(FLAGS.options) if FLAGS.options else default
        for name, changes in map(common.recipe, FLAGS.recipe):
            changed = RunOptions.from_dict(options.to_dict() | changes)
            recipes.append((name, changed))
    except BilmError as error:
        sys.exit(str(error))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(FLAGS.output or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        given = [FLAGS[name].value for name in TEXTS]
        text = common.Text(*given) if all(given) else common.corpus(folder)
        for name, options in recipes:
            own = measure(name, options, text, folder)
            print(f"{name:>12}:", ", ".join(f"{r['mean']:,.1f} at {r['step']:,}" for r in own))
            rows += own
        if FLAGS.losses:
            plot_losses(folder, list(dict.fromkeys(row["recipe"] for row in rows)), FLAGS.losses)
    if FLAGS.csv:
        with open(FLAGS.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ("recipe", "step", "mean"))
            writer.writeheader()
            writer.writerows(rows)
    if FLAGS.plot:
        plot(rows, FLAGS.plot)


if __name__ == "__main__":
    app.run(main)
