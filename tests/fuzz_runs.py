"""Runs of the programs that try damaged inputs, each in a process of its own."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parent


def assert_survives(script: str, n_inputs: int, kinds: Sequence[str]) -> None:
    """No other traceback, no hang, no crash of a library, no huge allocation, nothing partial."""
    command = [sys.executable, TESTS / script, "0", str(n_inputs), *kinds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, cwd=TESTS.parent)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "faults 0, partial files 0" in done.stdout
    counts = re.findall(
        rf"^(\w+) {n_inputs} success (\d+) refused (\d+)", done.stdout, flags=re.MULTILINE
    )
    assert [kind for kind, _, _ in counts] == kinds
    # Each kind was damaged, but not always beyond use.
    assert all(
        int(success) > n_inputs / 20 and int(refused) > n_inputs / 4
        for _, success, refused in counts
    )
