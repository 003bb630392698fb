"""Probes: answers and failures of computations in separate processes."""

import subprocess
import sys

import pytest

from bilm.support.probes import ProbeFailure, ask

ECHO = """
import os, sys, time
from bilm.support.probes import answer
if sys.argv[1] == "read":
    answer({"read": sys.stdin.read()})
if sys.argv[1] == "abort":
    os.abort()
if sys.argv[1] == "hang":
    time.sleep(60)
raise SystemExit(sys.argv[1])
"""


@pytest.fixture
def echo(tmp_path, monkeypatch):
    """The name of a probe that answers with its standard input, or fails with a message."""
    (tmp_path / "echo_probe.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "echo_probe"


def test_probe_reads_the_standard_input_of_the_process_that_asks(tmp_path, echo):
    """`bilm train --input -` times training steps on a text in standard input."""
    text = tmp_path / "text.txt"
    text.write_text("a b\n")
    program = f"from bilm.support.probes import ask; print(ask({echo!r}, 'read', timeout=60))"
    with open(text) as file:
        found = subprocess.run(
            [sys.executable, "-c", program], stdin=file, capture_output=True, text=True, check=True
        )
    assert found.stdout.strip() == "{'read': 'a b\\n'}"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("no bananas", "no bananas"),
        ("abort", "died with <Signals.SIGABRT"),
        ("hang", "timed out after 3 seconds"),
    ],
)
def test_reason_of_a_failure_is_its_message(echo, argument, message):
    with pytest.raises(ProbeFailure, match=message):
        ask(echo, argument, timeout=3 if argument == "hang" else 60)
