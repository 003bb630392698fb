"""The text of a run that is read ahead of the steps, and no longer."""

import subprocess
import sys
from pathlib import Path

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
from command_runs import environment
from tiny_runs import TEXT, VOCABULARY, WORDS, on_cpu, tiny_options

from bilm.data.vocabulary import UnicodeCharsVocabulary
from bilm.training.devices import Devices
from bilm.training.input import TrainingText

FAILS_IN_THE_FIRST_STEP = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from tiny_runs import WORDS, run
from bilm.data.dataset import LMDataset
from bilm.training.report import RunReport

def read_slowly(*arguments, read=LMDataset.iter_placed_batches):
    for window in read(*arguments):
        time.sleep(0.5)  # the thread that reads is in Python whenever the process ends
        yield window

def fail(*_):
    raise RuntimeError("fails after the first step")

LMDataset.iter_placed_batches, RunReport.add = read_slowly, fail
run(sys.argv[1], 9, changes=WORDS)
"""


def test_after_close_nothing_more_is_read():
    """The text of a run has no end; without `close` this test would not have one either."""
    options, vocab = tiny_options(**WORDS), UnicodeCharsVocabulary(VOCABULARY, 50)
    text = TrainingText(options, vocab, TEXT, 0)
    iterator = iter(text.batches(Devices(on_cpu()), None))
    next(iterator)
    text.close()
    n_read = len(text.traces)
    assert 0 < len(list(iterator)) < n_read == len(text.traces)


@pytest.mark.slow
def test_a_program_that_an_error_ends_does_not_wait_for_the_text(tmp_path):
    """Its traceback holds the pipeline until the interpreter is gone."""
    program = [sys.executable, "-c", FAILS_IN_THE_FIRST_STEP, tmp_path / "run"]
    found = subprocess.run(program, capture_output=True, env=environment(), timeout=120)
    assert found.returncode == 1 and b"fails after the first step" in found.stderr
