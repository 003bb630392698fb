"""The text of a run that is read ahead of the steps, and no longer."""

import subprocess
import sys
from pathlib import Path

import keras
import pytest
import tensorflow as tf

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
from command_runs import environment
from tiny_runs import TEXT, VOCABULARY, WORDS, on_cpu, tiny_options

from bilm.data.shards import resolve_shards
from bilm.data.vocabulary import UnicodeCharsVocabulary
from bilm.training.devices import Devices
from bilm.training.training_text import ENDS, TrainingText

FAILS_IN_THE_FIRST_STEP = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[1] / "helpers")!r})
from tiny_runs import WORDS, run
from bilm.data.dataset import LMDataset
from bilm.training.report import RunReport

def read_slowly(*arguments, read=LMDataset.iter_placed_batches):
    for window in read(*arguments):
        time.sleep(float(sys.argv[2]))  # the thread that reads is in Python, or about to be
        yield window

def fail(*_):
    raise RuntimeError("fails after the first step")

LMDataset.iter_placed_batches, RunReport.add = read_slowly, fail
run(sys.argv[1], 9, changes=WORDS)
"""


def test_close_stops_reading_and_ends_the_pipeline():
    """The text of a run has no end; without `close` this test would not have one either."""
    options, vocab = tiny_options(**WORDS), UnicodeCharsVocabulary(VOCABULARY, 50)
    text = TrainingText(options, vocab, TEXT, 0)
    iterator = text.batches(Devices(on_cpu()), None)
    next(iterator)
    text.close()
    n_read = len(text.traces)
    assert n_read > 0 and not list(iterator) and n_read == len(text.traces)


def test_close_ends_the_endless_pipeline_of_several_hosts(monkeypatch):
    monkeypatch.setattr(Devices, "several_hosts", True)
    options, vocab = tiny_options(**WORDS), UnicodeCharsVocabulary(VOCABULARY, 50)
    text = TrainingText(options, vocab, TEXT, 0)
    iterator = text.batches(Devices(on_cpu()), None)
    next(iterator)
    text.close()
    with pytest.raises(ENDS):
        next(iterator)


def test_close_ends_a_pipeline_whose_text_failed(tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"the cat\n" * 40 + b"\xff\n")
    options, vocab = tiny_options(**WORDS), UnicodeCharsVocabulary(VOCABULARY, 50)
    text = TrainingText(options, vocab, resolve_shards(str(tmp_path / "bad.txt"), "error"), 0)
    iterator = text.batches(Devices(on_cpu()), None)
    with pytest.raises(tf.errors.OpError):
        for _ in range(100):
            next(iterator)
    text.close()
    assert text.failures and not list(iterator)


def test_close_before_a_first_batch_does_nothing():
    options, vocab = tiny_options(**WORDS), UnicodeCharsVocabulary(VOCABULARY, 50)
    TrainingText(options, vocab, TEXT, 0).close()


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.02, 0.5])
def test_program_ends_after_an_error_without_waiting_for_the_text(seconds, tmp_path):
    """Its traceback holds the pipeline until the interpreter is gone."""
    program = [sys.executable, "-c", FAILS_IN_THE_FIRST_STEP, tmp_path / "run", str(seconds)]
    found = subprocess.run(program, capture_output=True, env=environment(), timeout=120)
    assert found.returncode == 1 and b"fails after the first step" in found.stderr
