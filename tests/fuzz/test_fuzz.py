"""Short runs of the fuzz programs; `make fuzz` runs more inputs."""

import importlib
import re
import sys
from pathlib import Path

import pytest
from command_runs import run_words

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("group", "n_inputs"),
    [
        ("inputs", 100),
        pytest.param("manylangs", 30, marks=pytest.mark.slow),
        pytest.param("allennlp", 40, marks=pytest.mark.slow),
        pytest.param("tfhub", 40, marks=pytest.mark.slow),
        pytest.param("models", 30, marks=pytest.mark.slow),
    ],
)
def test_damaged_inputs_end_in_success_or_one_clear_error(group, n_inputs):
    """No traceback, hang, crash of a library, huge allocation or partial output file."""
    command = [sys.executable, ROOT / "tests" / "fuzz", group, "0", n_inputs]
    done = run_words(command, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "faults 0, partial files 0" in done.stdout
    counts = re.findall(rf"^(\w+) {n_inputs} success (\d+) refused (\d+)", done.stdout, re.M)
    assert [kind for kind, _, _ in counts] == list(importlib.import_module(f"fuzz_{group}").KINDS)
    # The damage is neither without effect nor always fatal.
    for kind, success, refused in counts:
        assert int(success) > n_inputs / 20 and int(refused) > n_inputs / 4, kind
