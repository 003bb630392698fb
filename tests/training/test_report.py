"""What a run shows: one bar on a terminal, few lines elsewhere."""

import io
import sys
from types import SimpleNamespace

import pytest
import tensorflow as tf
from absl import logging
from tiny_runs import HELDOUT, WORDS, run, tiny_options
from tiny_specs import heldout_of, spec_of

from bilm.scoring.perplexity import Perplexity
from bilm.training import report
from bilm.training.decisions import Timing
from bilm.training.settings import RunSettings
from bilm.training.step import StepResult

KERNEL = {"JPY_PARENT_PID": "1", "MPLBACKEND": "module://matplotlib_inline.backend_inline"}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_terminal_shows_one_bar_and_the_evaluations_above_it(tmp_path, monkeypatch):
    terminal, verbosity = Terminal(), logging.get_verbosity()
    monkeypatch.setenv("TERM", "xterm")
    for name in KERNEL:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stderr", terminal)
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    try:
        run(tmp_path, 4, heldout=HELDOUT, eval_steps=2, log_steps=1)
    finally:
        logging.set_verbosity(verbosity)
    *_, bar = (shown := terminal.getvalue()).split("epoch 1, step 4 of 4: sampled loss ")
    assert " tokens/s; held-out perplexity at step 4: " in bar
    assert shown.count(" (running text") == 2  # none is overwritten by the bar
    assert "Sharding" not in shown  # TensorFlow's note of each save
    assert "tokens/s, learning rate " not in shown  # of the lines that the bar replaces


def test_notebook_shows_one_bar_in_place_and_none_for_its_commands(monkeypatch):
    outputs = []

    def display(data, raw, display_id):
        place = len(outputs)
        outputs.append(data)
        return SimpleNamespace(update=lambda data, raw: outputs.__setitem__(place, data))

    monkeypatch.setattr(logging, "get_verbosity", lambda: logging.WARNING)  # the default
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    with report.progress_bar(4) as bar:
        bar(completed=1)
        bar(completed=2, total=4, description="half")
    assert outputs == [{"text/plain": f"[{'=' * 10}{' ' * 10}] half"}]

    monkeypatch.setattr(logging, "get_verbosity", lambda: logging.INFO)
    monkeypatch.delitem(sys.modules, "ipykernel")
    monkeypatch.setattr(sys, "stderr", Terminal())
    for name, value in KERNEL.items():
        with monkeypatch.context() as patched:
            patched.setenv(name, value)
            with report.progress_bar(4) as bar:
                assert bar is None


@pytest.mark.parametrize(("n_heldout", "eval_steps"), [(49, 10), (50, 20), (200, 50)])
def test_long_heldout_text_is_evaluated_less_often(n_heldout, eval_steps):
    options = tiny_options(**WORDS, n_train_tokens=100)  # in 10 steps
    assert spec_of(options, heldout=heldout_of(n_heldout)).eval_steps == eval_steps


def report_step(reported, spec, done, loss=1.0, seconds=1.0):
    """Report a step with this loss, after steps of so many seconds."""
    timing = Timing(now=seconds * done, n_steps=done - 1, trained=seconds * done)
    result = StepResult(tf.constant([[loss]]), tf.constant(1.0), 0.2)
    reported.add(spec, done, result, timing, compiles=done == 1)


def test_report_shows_the_mean_loss_since_the_report_before(log):
    options = tiny_options(**WORDS, n_train_tokens=50)
    spec = spec_of(options, 9, settings=RunSettings(log_steps=4))
    reported = report.RunReport(spec, report.History(None))
    for done in range(1, 10):
        report_step(reported, spec, done, float(done))
    for mean in (1.0, 2.5, 6.5, 9.0):  # of steps 1, 1 to 4, 5 to 8, 9
        assert f"sampled loss {mean:.3f}, " in log.text
    assert log.text.count("sampled loss") == 4


@pytest.mark.parametrize(("epochs", "n_lines"), [(0, 6), (3, 9), (12, 13)])
def test_log_without_a_terminal_has_few_lines(log, epochs, n_lines):
    """A minute of 1,200 steps: the first step, evaluations, and lines where none is near."""
    options = tiny_options(**WORDS, n_train_tokens=10_000)
    heldout = heldout_of(100) if epochs else None
    spec = spec_of(options, 1200, heldout)
    reported = report.RunReport(spec, report.History(None))
    for done in range(1, 1201):
        report_step(reported, spec, done, seconds=0.05)
        if epochs and done % (1200 // epochs) == 0:
            reported.heldout(spec, done, Perplexity({"forward": 9.0}, 9.0, 10), "compared", True)
    assert epochs + 1 <= len(log.messages) <= n_lines, log.messages
    end = ": held-out perplexity 9.00 (running text, the best so far); compared"
    assert log.messages[-1].endswith(end if epochs else ", learning rate 0.2")
    assert all(", 0:00:" in line for line in log.messages[2:-1])  # the time left
