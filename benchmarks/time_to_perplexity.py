#!/usr/bin/env python
"""Held-out perplexity over training steps and processor minutes, for several training recipes.

Examples:
  python benchmarks/time_to_perplexity.py --n_steps 500 --recipe 'adagrad: {}' \\
      --recipe 'adam: {"optimizer": "adam", "learning_rate": 0.004}' --plot recipes.png
  python benchmarks/time_to_perplexity.py --input text.txt --vocab vocab.txt --heldout dev.txt \\
      --n_steps 100,400,1600 --eval_steps 1600 --minutes minutes.png --recipe 'auto: {}' \\
      --recipe 'tiny: {"options": "tiny", "optimizer": "muon", "learning_rate": 0.012}'

A recipe is a name and a JSON object whose keys replace those of --options (`compact` with the
optimizer of bilm-tf) or of another size, "options"; `auto` is what `bilm train` chooses. The
default text is that of train.py. With --output, the same command resumes interrupted runs,
and `bilm.studies.usages.draw_run` draws the losses of one.
"""

import itertools
import json
import sys
import tempfile
from pathlib import Path

import common
from absl import app, flags

from bilm.options.run_options import AUTO, RunOptions, load_run_options
from bilm.support.model_files import HISTORY, MEASURED
from bilm.training.history import read_history

RECIPES = (
    "adagrad: {}",
    'adam: {"optimizer": "adam", "learning_rate": 0.004, "warmup_steps": 100, "decay": "linear",'
    ' "decay_start": 0.33}',
)
AS_BILM_TF = {
    "optimizer": "adagrad", "learning_rate": 0.2, "warmup_steps": 0, "decay": "none",
    "decay_start": 0.0, "softmax_bias": "zeros", "n_negative_samples_batch": 1024,
}  # fmt: skip
TEXTS = ("input", "vocab", "heldout")

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("recipe", RECIPES, "Name, colon, JSON object.")
flags.DEFINE_string("options", None, "Name or path [compact, with Adagrad].")
flags.DEFINE_string("input", None, "Training text [classics_en].")
flags.DEFINE_string("vocab", None, "Vocabulary of the text.")
flags.DEFINE_string("heldout", None, "Held-out text.")
flags.DEFINE_list("n_steps", ["1500"], "Steps of the runs of each recipe.")
flags.DEFINE_integer("eval_steps", 250, "Steps between evaluations.", 1)
flags.DEFINE_integer("seed", 0, "Seed of each run.")
flags.DEFINE_enum("precision", "float32", ("float32", "bfloat16"), "Precision of products.")
flags.DEFINE_string("output", None, "Folder for the runs [a temporary folder].")
flags.DEFINE_string("plot", None, "PNG file for a plot of perplexity over steps.")
flags.DEFINE_string("minutes", None, "PNG file for a plot of perplexity over processor minutes.")


def measure(
    name: str, options: RunOptions | None, n_steps: str, text: common.Text, folder: Path
) -> list[dict]:
    """Train; return step, perplexity, that of bigrams, and the run's minutes by evaluation."""
    options_file, run = "auto", folder / f"{name}-{n_steps}"
    if options is not None:
        options_file = folder / f"{name}.json"
        options_file.write_text(json.dumps(options.to_dict()))
    before = common.children_seconds()
    common.bilm(
        "train", "--quiet", "--input", text.train, "--vocab", text.vocab_file,
        "--heldout", text.heldout, "--options", options_file, "--output", run,
        "--n_steps", n_steps, "--eval_steps", FLAGS.eval_steps, "--seed", FLAGS.seed,
        "--precision", FLAGS.precision,
    )  # fmt: skip
    figures = {"recipe": name, "minutes": (common.children_seconds() - before) / 60}
    figures["bigrams"] = json.loads((run / MEASURED).read_text())["compared"]["bigrams"]
    rows = [(int(row["step"]), row["heldout_perplexity"]) for row in read_history(run / HISTORY)]
    return [{**figures, "step": step, "mean": float(mean)} for step, mean in rows if mean]


def plot(rows: list[dict], path: str) -> None:
    import pandas as pd

    table = pd.DataFrame(rows).pivot(index="step", columns="recipe", values="mean")
    table.plot(style="o-", logy=True, ylabel="held-out perplexity").figure.savefig(path)


def plot_minutes(rows: list[dict], path: str) -> None:
    """Plot the last perplexity of each run over its minutes, and that of bigrams."""
    import pandas as pd
    from matplotlib import pyplot as plt

    axes = plt.figure().add_subplot(xlabel="processor minutes", ylabel="held-out perplexity")
    for name, runs in pd.DataFrame(rows).groupby("recipe"):
        axes.loglog(runs.groupby("minutes")["mean"].last(), "o-", label=name)
    axes.axhline(rows[-1]["bigrams"], color="gray", linestyle="--", label="bigrams")
    axes.legend()
    axes.figure.savefig(path)


def main(_):
    if len({bool(FLAGS[name].value) for name in TEXTS}) > 1:
        sys.exit("expected all of --input, --vocab and --heldout, or none of them")
    recipes, rows = [], []
    options = load_run_options(FLAGS.options or "compact")
    if not FLAGS.options:
        options = options.replace(**AS_BILM_TF)
    for recipe in FLAGS.recipe:
        name, _, changes = recipe.partition(":")
        changes = json.loads(changes)
        size = changes.pop("options", None)
        changed = (load_run_options(size) if size else options).to_dict() | changes
        recipes.append((name, None if name == AUTO else RunOptions.from_dict(changed)))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(FLAGS.output or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        given = [FLAGS[name].value for name in TEXTS]
        text = common.Text(*given) if all(given) else common.corpus(folder)
        for (name, options), n_steps in itertools.product(recipes, FLAGS.n_steps):
            own = measure(name, options, n_steps, text, folder)
            means = ", ".join(f"{row['mean']:,.1f} at {row['step']:,}" for row in own)
            print(f"{name:>12}: {means}; {own[-1]['minutes']:.1f} processor minutes", flush=True)
            rows += own
    if FLAGS.minutes:
        plot_minutes(rows, FLAGS.minutes)
    if FLAGS.plot:
        plot(rows, FLAGS.plot)


if __name__ == "__main__":
    app.run(main)
