"""Run each benchmark briefly and check that it prints its figures."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tiny_runs import HELDOUT, TEXT, VOCABULARY

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
SMALL_SOFTMAX = "--negatives", "64", "--n_tokens", "2000"
CORPUS = "--input", TEXT, "--vocab", str(VOCABULARY), "--heldout", HELDOUT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "flags", "expected"),
    [
        pytest.param(
            "usages.py",
            ["--tokens", "2000", "--words", "5"],
            "peak_memory_mb",
            marks=pytest.mark.skipif(not find_spec("pyarrow"), reason="requires pyarrow"),
        ),
        ("train.py", [*SMALL_SOFTMAX, "--seconds", "1"], "tokens_per_s"),
        (
            "input.py",
            ["--model", "tiny", "--replicas", "2", "--negatives", "64", "--seconds", "1"],
            "batches_per_s",
        ),
        (
            "latency.py",
            ["--model", "tiny", "--precision", "float32", "--n_sentences", "2", "--rounds", "1"],
            r"bilm float32, cached +\d",
        ),
        ("precision.py", [*SMALL_SOFTMAX, "--n_steps", "1"], "bfloat16: loss"),
        pytest.param(
            "int8.py",
            ["--n_times", "1", "--rows", "2", "--n_steps", "2", "--n_sentences", "20"],
            "int8, text.*int8, rows 2",
            marks=pytest.mark.skipif(not find_spec("onnxruntime"), reason="requires onnxruntime"),
        ),
        pytest.param(
            "torch_products.py",
            ["--n_times", "1", "--rows", "2"],
            "torch.mm, rows 2",
            marks=pytest.mark.skipif(not find_spec("torch"), reason="requires torch"),
        ),
        ("tables.py", ["--n_sentences", "50", "--formats", "npz", "--check"], "difference"),
        ("proteins.py", ["--model", "tiny", "--n_residues", "2000"], "residues_per_s"),
        ("cluster_costs.py", ["--options", "tiny", "--vocabulary", "1000"], "replicas on"),
        (
            "scaling.py",
            ["--options", "tiny", "--axis", "batch", "--values", "4,8", "--n_steps", "1"],
            "8",
        ),
        (
            "time_to_perplexity.py",
            ["--options", "tiny", *CORPUS, "--n_steps", "2", "--eval_steps", "1"],
            "adagrad: .* at 1, .* at 2",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.endswith(".py") else "",
)
def test_benchmark_prints_its_figures(name, flags, expected):
    command = [sys.executable, BENCHMARKS / name, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(expected, done.stdout, re.DOTALL), done.stdout
