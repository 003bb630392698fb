"""examples/classify.py as a user runs it, on a few texts made here."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from stored_files import OPTIONS, WEIGHTS

pytestmark = pytest.mark.clients

if find_spec("sklearn") is None:
    pytest.skip("needs the extra sklearn: make test-clients", allow_module_level=True)
PROGRAM = Path(__file__).parents[2] / "examples" / "classify.py"


def run(*arguments):
    command = [sys.executable, PROGRAM, "--model", OPTIONS, "--weights", WEIGHTS, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_classify_example_learns(tmp_path):
    kinds = [("pos", "good"), ("neg", "bad")]
    rows = [f"{kinds[i % 2][0]}\t{kinds[i % 2][1]} film {i}" for i in range(40)]
    (tmp_path / "films.tsv").write_text("\n".join(["label\ttext", *rows]))
    done = run("--train", tmp_path / "films.tsv", "--folds", "2")
    assert done.returncode == 0, done.stderr
    means = re.findall(r"^accuracy, (ELMo|bag).*: mean ([\d.]+) \(", done.stdout, re.MULTILINE)
    assert [name for name, _ in means] == ["ELMo", "bag"]
    assert all(float(mean) == 100 for _, mean in means)


def test_classify_example_without_data(tmp_path):
    done = run("--train", tmp_path / "films.tsv")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].endswith(
        "films.tsv: cannot be read: No such file or directory"
    )
