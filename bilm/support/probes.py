"""Runs computations in separate processes, because a library can abort its process or wait forever.

A probe is a module that is run as a program. It calls `answer`, which prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any, NoReturn

MARK = "bilm probe:"  # precedes the answer; libraries may print lines, too
LAST_LINES = 2  # of standard error, for a message


class ProbeFailure(Exception):
    """A probe ended without an answer. Its text says why."""


def ask(module: str, *arguments: str, timeout: float, **environment: str) -> dict[str, Any]:
    """Run a probe in a new process, with the standard input of this one, and return its answer.

    Args:
        module: name of the module.
        arguments: its arguments.
        timeout: seconds.
        environment: variables of the process's environment, in addition to this process's.
    Raises: ProbeFailure if it raises an error, crashes or does not end in time.
    """
    command = [sys.executable, "-m", module, *arguments]
    variables = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, **environment}
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout,
            env=variables,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ProbeFailure(f"no answer after {timeout:,.0f} seconds") from error
    for line in reversed(found.stdout.splitlines()):
        if line.startswith(MARK):
            return json.loads(line.removeprefix(MARK))
    lines = [line.strip() for line in found.stderr.splitlines() if line.strip()]
    message = "; ".join(lines[-LAST_LINES:]) or "no message"
    if found.returncode < 0:
        number = -found.returncode
        known = {s.value for s in signal.Signals}
        name = signal.Signals(number).name if number in known else f"signal {number}"
        message = f"the process was ended by {name}: {message}"
    raise ProbeFailure(message)


def answer(found: dict[str, Any]) -> NoReturn:
    """Print the answer of this process and end it."""
    sys.stdout.write(f"{MARK}{json.dumps(found)}\n")
    sys.stdout.flush()
    os._exit(0)  # without the destructors of libraries, which can wait or crash
