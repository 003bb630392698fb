#!/usr/bin/env python
"""How resetting the LSTM state in training changes perplexity from carried and from zero state.

Examples:
  python benchmarks/state.py --rates 0,0.05 --steps 250,500,1000,1500
  python benchmarks/state.py --rates 0.05 --seeds 0,1,2 --json state.json

Trains one biLM per rate and seed on classics_en of the shared data, or on the demo's text if it is
missing. At each of --steps, it evaluates held-out text (full softmax, 64 rows) from zero state and
from the state that training has reached. Runs in an existing --save_dir are continued.
"""

import itertools
import tempfile
from pathlib import Path

import common
from absl import app, flags, logging

from bilm.data.vocabulary import UnicodeCharsVocabulary
from bilm.evaluation import Evaluator, heldout_dataset
from bilm.options import RunOptions
from bilm.storage.checkpoint import load_run, load_state
from bilm.training.run import TrainingRun

FLAGS = flags.FLAGS
flags.DEFINE_list("rates", ["0", "0.05"], "Probabilities of resetting a row at a window's start.")
flags.DEFINE_list("seeds", ["0"], "Seeds of the runs.")
flags.DEFINE_list("steps", ["250", "500", "1000", "1500"], "Steps at which to measure.")
flags.DEFINE_string("save_dir", None, "Folder that keeps the runs [none].")
flags.DEFINE_string("json", None, "JSON file for the figures.")


def measure(save_dir: str, vocab_file: str, heldout: str) -> dict:
    """Return the held-out perplexities of a run's last checkpoint, forward and backward."""
    model = load_run(save_dir)
    vocab = UnicodeCharsVocabulary(
        vocab_file, model.options.char_cnn.max_characters_per_token, validate_file=True
    )
    evaluator = Evaluator(model)
    state, n_rows = load_state(save_dir, model)
    found = {}
    for name, start in (("zero", None), ("carried", state)):
        dataset = heldout_dataset(heldout, vocab, bidirectional=True)
        found[name] = list(evaluator(dataset, n_rows, state=start).directions.values())
    return found


def main(argv):
    del argv
    logging.set_verbosity(logging.WARNING)
    steps = sorted(int(k) for k in FLAGS.steps)
    with tempfile.TemporaryDirectory() as folder:
        text = common.corpus(Path(folder))
        runs = Path(FLAGS.save_dir or folder)
        figures = []
        print("rate  seed  step   zero state fwd/bwd   carried fwd/bwd   zero : carried")
        for rate, seed, step in itertools.product(FLAGS.rates, FLAGS.seeds, steps):
            save_dir = runs / f"rate{rate}_seed{seed}"
            options = RunOptions.from_dict(
                {**common.MIDDLE, "state_reset_probability": float(rate)}
            )
            given = options, text.vocab_file, text.train, save_dir
            TrainingRun(*given, n_steps=step, seed=int(seed)).train()
            found = measure(str(save_dir), text.vocab_file, text.heldout)
            figures.append({"rate": float(rate), "seed": int(seed), "step": step, **found})
            zero, carried = found["zero"], found["carried"]
            ratio = (zero[0] * zero[1] / carried[0] / carried[1]) ** 0.5
            print(
                f"{rate:>4}  {seed:>4}  {step:>4}  {zero[0]:>10,.1f} {zero[1]:>10,.1f}"
                f"  {carried[0]:>8,.1f} {carried[1]:>8,.1f}   {ratio:,.3f}",
                flush=True,
            )
            common.write_json(FLAGS.json, figures)


if __name__ == "__main__":
    app.run(main)
