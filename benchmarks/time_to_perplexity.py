#!/usr/bin/env python
"""Steps and hours to a held-out perplexity, for recipes of training side by side.

Examples:
  python benchmarks/time_to_perplexity.py --csv recipes.csv --goal 128
  python benchmarks/time_to_perplexity.py --n_steps 500 --recipe 'adagrad:' \\
      --recipe 'adam:optimizer=adam,learning_rate=0.004,warmup_steps=100' --plot recipes.png
  python benchmarks/time_to_perplexity.py --options small --train_prefix 'corpus/*.txt' \\
      --vocab_file vocab.txt --heldout_prefix dev.txt --save_dir runs

A recipe is a name and keys of options.json that replace those of --options. Each is a run, in
--save_dir if that is given: after Ctrl-C the same command then goes on where it was; after a kill
too, but the seconds since the last evaluation are not counted. The text is classics_en of the
shared data, or Python's documentation where neither that nor --train_prefix is there. Seconds are
those of training steps and saves; the time of evaluations is not counted. --plot needs matplotlib.
"""

import csv
import json
import sys
import tempfile
import time
from pathlib import Path

import common
from absl import app, flags, logging

from bilm.files import replacing
from bilm.options import RunOptions, load_run_options
from bilm.training import run as training
from bilm.training.devices import make_strategy

RECIPES = (
    "adagrad:",
    "adam:optimizer=adam,learning_rate=0.004,warmup_steps=100,decay=linear,decay_start=0.33",
)
UNITS = {"steps": ("step", 1), "hours": ("seconds", 3600)}  # a field, and how many are one
FIELDS = ("recipe", "seed", "step", "seconds", "forward", "backward", "mean")

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("recipe", RECIPES, "A name, a colon, key=value pairs between commas.")
flags.DEFINE_string("options", None, "By name or path [512/128, 64 x 20, 1,024 negatives].")
flags.DEFINE_string("train_prefix", None, "Text [classics_en].")
flags.DEFINE_string("vocab_file", None, "Its vocabulary.")
flags.DEFINE_string("heldout_prefix", None, "Text to measure on.")
flags.DEFINE_integer("n_steps", 1500, "Steps of each run.", 1)
flags.DEFINE_integer("eval_steps", 250, "Steps between evaluations.", 1)
flags.DEFINE_integer("seed", 0, "Of each run.")
flags.DEFINE_enum("precision", "float32", ("float32", "bfloat16"), "Of the operands of products.")
flags.DEFINE_integer("cpu_replicas", 1, "Replicas, where there is no GPU.", 1)
flags.DEFINE_float("goal", None, "Perplexity, for which steps and hours are reported.")
flags.DEFINE_string("save_dir", None, "Folder for the runs; none keeps nothing.")
flags.DEFINE_string("csv", None, "File for the figures.")
flags.DEFINE_string("plot", None, "File for a picture of them.")
flags.DEFINE_multi_enum("over", list(UNITS), list(UNITS), "What --plot draws perplexity over.")


class TimedRun(training.TrainingRun):
    """A run that notes what each evaluation found and how long its steps had taken by then."""

    def train(self) -> list[dict]:
        """Train; return a row per evaluation, those of an interrupted command too."""
        self.notes = self.folder.path / "timed.json"
        noted = json.loads(self.notes.read_text()) if self.notes.exists() else {}
        if noted and noted["run"] != self._described():
            sys.exit(f"{self.folder}: holds a run of another recipe, seed, length or precision")
        self.rows, seconds = noted.get("rows", []), noted.get("seconds", 0.0)
        self.since, self.paused = time.monotonic() - seconds, 0.0
        if not super().train().finished:
            self._note(self._seconds())
            sys.exit(f"{self.folder}: stopped at step {self.step}; the same command goes on")
        if not self.rows:
            sys.exit(f"{self.folder}: holds a run that this benchmark did not time")
        return self.rows

    def _described(self) -> dict:
        own = {"seed": self.seed, "n_steps": self.n_steps, "precision": self.precision}
        return self.options.to_dict() | own

    def _seconds(self) -> float:
        return time.monotonic() - self.since - self.paused

    def _note(self, seconds: float) -> None:
        with replacing(self.notes) as path:
            notes = {"run": self._described(), "rows": self.rows, "seconds": seconds}
            path.write_text(json.dumps(notes))

    def _evaluate(self):
        seconds, start = self._seconds(), time.monotonic()
        found = super()._evaluate()
        self.rows.append(
            {"step": self.step, "seconds": seconds, **found.directions, "mean": found.mean}
        )
        self._note(seconds)
        self.paused += time.monotonic() - start
        return found


def recipe(text: str) -> tuple[str, dict]:
    """Return the name and the changed options of a recipe, whose values are JSON or plain words."""
    name, _, rest = text.partition(":")
    pairs = (pair.split("=", 1) for pair in rest.split(",") if pair)
    return name, {key: _value(value) for key, value in pairs}


def _value(text: str):
    try:
        return json.loads(text)
    except ValueError:
        return text


def measure(changes: dict, options: RunOptions, text: common.Text, save_dir: Path) -> list[dict]:
    """Train with some options changed; return a row per evaluation."""
    return TimedRun(
        options.replace(**changes), text.vocab_file, text.train, save_dir, text.heldout,
        make_strategy(cpu_replicas=FLAGS.cpu_replicas),
        n_steps=FLAGS.n_steps, eval_steps=FLAGS.eval_steps, seed=FLAGS.seed,
        precision=FLAGS.precision,
    ).train()  # fmt: skip


def tell(name: str, rows: list[dict]) -> None:
    """Print the last evaluation of a recipe, and when it reached the goal."""
    last = rows[-1]
    line = f"{name:>12}: {last['mean']:,.1f} after {last['step']:,} steps, {last['seconds']:,.0f} s"
    if FLAGS.goal is not None:
        reached = next((row for row in rows if row["mean"] <= FLAGS.goal), None)
        line += f"; {FLAGS.goal:g} " + (
            f"at step {reached['step']:,}, after {reached['seconds'] / 3600:.2f} hours"
            if reached
            else "was not reached"
        )
    print(line, flush=True)


def plot(rows: list[dict], path: str) -> None:
    """Draw the perplexity of each recipe over steps, over time or over both."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter

    figure = Figure(figsize=(5 * len(FLAGS.over), 4), layout="constrained")
    panels = figure.subplots(1, len(FLAGS.over), sharey=True, squeeze=False)[0]
    for name in dict.fromkeys(row["recipe"] for row in rows):
        own = [row for row in rows if row["recipe"] == name]
        for panel, label in zip(panels, FLAGS.over, strict=True):
            field, unit = UNITS[label]
            panel.plot([r[field] / unit for r in own], [r["mean"] for r in own], "o-", label=name)
    for panel, label in zip(panels, FLAGS.over, strict=True):
        panel.set(xlabel=label, ylabel="held-out perplexity", yscale="log")
    panels[0].yaxis.set_major_formatter(ScalarFormatter())
    panels[0].yaxis.set_minor_formatter(ScalarFormatter())
    panels[0].legend()
    figure.savefig(path)


def main(argv):
    del argv
    logging.set_verbosity(logging.WARNING)
    options = RunOptions.from_dict(common.MIDDLE | {"state_reset_probability": 0.01})
    if FLAGS.options:
        options = load_run_options(FLAGS.options)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        text = common.corpus(Path(folder))
        if FLAGS.train_prefix:
            text = common.Text(FLAGS.train_prefix, FLAGS.vocab_file, FLAGS.heldout_prefix)
        for name, changes in map(recipe, FLAGS.recipe):
            own = measure(changes, options, text, Path(FLAGS.save_dir or folder) / name)
            rows += [{"recipe": name, "seed": FLAGS.seed} | row for row in own]
            tell(name, own)
    if FLAGS.csv:
        with open(FLAGS.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, FIELDS, restval="")
            writer.writeheader()
            writer.writerows(rows)
    if FLAGS.plot:
        plot(rows, FLAGS.plot)


if __name__ == "__main__":
    app.run(main)
