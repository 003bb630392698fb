"""The benchmarks run, each as briefly as it can; what they measure is not looked at."""

import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest
from tiny_runs import HELDOUT, TEXT, VOCABULARY

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
SMALL_SOFTMAX = "--negatives", "64", "--n_tokens", "2000"
GIVEN = "--train_prefix", TEXT, "--vocab_file", str(VOCABULARY), "--heldout_prefix", HELDOUT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "flags", "expected"),
    [
        ("train.py", [*SMALL_SOFTMAX, "--seconds", "1"], "tokens_per_s"),
        ("precision.py", [*SMALL_SOFTMAX, "--n_steps", "1"], "bfloat16: loss"),
        ("optimizers.py", ["--model", "tiny", "--steps", "1", "--rounds", "1"], "of adagrad's"),
        (
            "scaling.py",
            ["--options", "tiny", "--axis", "batch", "--values", "4,8", "--n_steps", "1"],
            "8",
        ),
        (
            "time_to_perplexity.py",
            ["--options", "tiny", *GIVEN, "--n_steps", "2", "--eval_steps", "1", "--goal", "1"],
            "adagrad: .* after 2 steps, .* was not reached",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.endswith(".py") else "",
)
def test_benchmarks_run(name, flags, expected):
    command = [sys.executable, BENCHMARKS / name, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(expected, done.stdout), done.stdout
