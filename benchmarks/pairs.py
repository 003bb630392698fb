#!/usr/bin/env python
"""Compare the speed of this checkout with another checkout, in alternating pairs of runs.

Examples:
  python benchmarks/pairs.py --other /tmp/before --n_pairs 3 embed.py --model small

Machines are noisy: compare the ratio within a pair, and the median of the ratios; above 1, this
checkout is faster. The two take turns in starting a pair, and use the packages of this Python.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent


def tokens_per_s(checkout: Path, benchmark: str, arguments: list[str]) -> float:
    """Run a benchmark of a checkout; return the tokens per second that it measured."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        command = [sys.executable, checkout / "benchmarks" / benchmark, *arguments]
        env = os.environ | {"PYTHONPATH": str(checkout)}
        subprocess.run(
            [*command, f"--json={path}"], check=True, env=env, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        return json.loads(path.read_text())["tokens_per_s"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--other", type=Path, required=True, help="the other checkout")
    parser.add_argument("--n_pairs", type=int, default=9, help="pairs of runs [9]")
    parser.add_argument("benchmark", help="a script of benchmarks/ that takes --json")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    args = parser.parse_args()
    ratios = []
    for i in range(args.n_pairs):
        order = [HERE, args.other.resolve()][:: 1 if i % 2 else -1]
        rates = {path: tokens_per_s(path, args.benchmark, args.arguments) for path in order}
        ours, theirs = rates[HERE], rates[args.other.resolve()]
        ratios.append(ours / theirs)
        print(f"pair {i + 1}: {ours:,.0f} / {theirs:,.0f} tokens/s = {ratios[-1]:.3f}", flush=True)
    print(f"median of {len(ratios)} ratios: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
