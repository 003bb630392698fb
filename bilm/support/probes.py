"""Runs computations in separate processes, because a library can abort its process or wait forever.

A probe is a module that is run as a program. It calls `answer`, which prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NoReturn

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
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments], capture_output=True, text=True,
            errors="replace", timeout=timeout,
            env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, **environment},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ProbeFailure(f"no answer after {timeout:,.0f} seconds") from error
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    message = "; ".join(lines[-LAST_LINES:]) or "no message"
    raise ProbeFailure(f"the process ended with status {done.returncode}: {message}")


def answer(found: dict[str, Any]) -> NoReturn:
    """Print the answer of this process and end it."""
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.stdout.flush()
    os._exit(0)  # without the destructors of libraries, which can wait or crash
