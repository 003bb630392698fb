#!/usr/bin/env python
"""Held-out perplexity over training steps, for several training recipes.

Examples:
  python benchmarks/time_to_perplexity.py --n_steps 500 --recipe 'adagrad: {}' \\
      --recipe 'adam: {"optimizer": "adam", "learning_rate": 0.004}' --plot recipes.png
  python benchmarks/time_to_perplexity.py --options compact --n_steps 744 --eval_steps 62 \\
      --recipe 'none: {"dropout": 0}' --recipe 'dropout: {"dropout": 0.5}' --losses losses.png

A recipe is a name and a JSON object whose keys replace those of --options; by default, these are
the options of `compact` with the optimizer of bilm-tf. Each recipe is one run of `bilm train`; with
--output, the same command resumes interrupted runs. The default text is that of train.py. --plot
and --losses require the extra analysis.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import common
from absl import app, flags

from bilm.errors import BilmError
from bilm.options.run_options import RunOptions, load_run_options

RECIPES = (
    "adagrad: {}",
    'adam: {"optimizer": "adam", "learning_rate": 0.004, "warmup_steps": 100, "decay": "linear",'
    ' "decay_start": 0.33}',
)
AS_BILM_TF = {
    "optimizer": "adagrad", "learning_rate": 0.2, "warmup_steps": 0, "decay": "none",
    "decay_start": 0.0, "softmax_bias": "zeros", "n_negative_samples_batch": 1024,
}  # fmt: skip
EVALUATION = re.compile(r"step (\d+) of .*: held-out perplexity ([\d.]+)")
TEXTS = ("input", "vocab", "heldout")

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("recipe", RECIPES, "Name, colon, JSON object.")
flags.DEFINE_string("options", None, "Name or path [compact, with Adagrad].")
flags.DEFINE_string("input", None, "Training text [classics_en].")
flags.DEFINE_string("vocab", None, "Vocabulary of the text.")
flags.DEFINE_string("heldout", None, "Held-out text.")
flags.DEFINE_integer("n_steps", 1500, "Steps of each run.", 1)
flags.DEFINE_integer("eval_steps", 250, "Steps between evaluations.", 1)
flags.DEFINE_integer("seed", 0, "Seed of each run.")
flags.DEFINE_enum("precision", "float32", ("float32", "bfloat16"), "Precision of products.")
flags.DEFINE_string("output", None, "Folder for the runs [a temporary folder].")
flags.DEFINE_string("plot", None, "PNG file for a plot of perplexity over steps.")
flags.DEFINE_string("losses", None, "PNG file for training and held-out losses over steps.")


def measure(name: str, options: RunOptions, text: common.Text, folder: Path) -> list[dict]:
    """Train; return the step and perplexity of each evaluation."""
    options_file = folder / f"{name}.json"
    options_file.write_text(json.dumps(options.to_dict()))
    command = [
        sys.executable, "-m", "bilm", "train", f"--input={text.train}",
        f"--vocab={text.vocab_file}", f"--heldout={text.heldout}",
        f"--options={options_file}", f"--output={folder / name}",
        f"--n_steps={FLAGS.n_steps}", f"--eval_steps={FLAGS.eval_steps}", f"--seed={FLAGS.seed}",
        f"--precision={FLAGS.precision}",
    ]  # fmt: skip
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    found = EVALUATION.findall(done.stderr.replace(",", ""))
    return [{"recipe": name, "step": int(step), "mean": float(mean)} for step, mean in found]


def plot(rows: list[dict], path: str) -> None:
    import pandas as pd

    table = pd.DataFrame(rows).pivot(index="step", columns="recipe", values="mean")
    table.plot(style="o-", logy=True, ylabel="held-out perplexity").figure.savefig(path)


def plot_losses(folder: Path, names: list[str], path: str) -> None:
    """Plot training and held-out losses of bidirectional runs, the mean of both directions."""
    import numpy as np
    import pandas as pd

    losses = {}
    for name in names:
        run = pd.read_csv(folder / name / "history.csv", index_col="step")
        losses[f"{name}, held-out"] = np.log(run["heldout_perplexity"])
        losses[f"{name}, training"] = (run["loss_forward"] + run["loss_backward"]) / 2
    axes = pd.DataFrame(losses).interpolate().plot(ylabel="loss, nats per word")
    axes.figure.savefig(path)


def main(argv):
    del argv
    if len({bool(FLAGS[name].value) for name in TEXTS}) > 1:
        sys.exit("expected all of --input, --vocab and --heldout, or none of them")
    recipes, rows = [], []
    try:
        options = load_run_options(FLAGS.options or "compact")
        if not FLAGS.options:
            options = options.replace(**AS_BILM_TF)
        for recipe in FLAGS.recipe:
            name, _, changes = recipe.partition(":")
            changed = RunOptions.from_dict(options.to_dict() | json.loads(changes))
            recipes.append((name, changed))
    except (BilmError, ValueError) as error:
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
    if FLAGS.plot:
        plot(rows, FLAGS.plot)


if __name__ == "__main__":
    app.run(main)
