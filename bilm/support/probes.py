"""Runs computations in separate processes, because a library can abort its process or wait forever.

A probe is a module that is run as a program. It calls `answer`, which prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NoReturn

from bilm.support.process import LOG_LEVEL, QUIET


class ProbeFailure(Exception):
    """A probe ended without an answer. Its text says why."""


def ask(module: str, *arguments: str, timeout: float, **environment: str) -> dict[str, Any]:
    """Run a probe in a new process, with the standard input of this one, and return its answer.

    Args:
        module, arguments: name of the module and its arguments.
        timeout: seconds.
        environment: variables of the process's environment, in addition to this process's.
    Raises: ProbeFailure if it raises an error, crashes or does not end in time.
    """
    command = [sys.executable, "-m", module, *arguments]
    variables = {LOG_LEVEL: QUIET, **os.environ, **environment}
    try:
        done = subprocess.run(command, capture_output=True, env=variables, timeout=timeout)
        done.check_returncode()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        *_, last = (error.stderr or b"").strip().split(b"\n")
        raise ProbeFailure(f"{error} {last.decode(errors='replace')}") from error
    return json.loads(done.stdout.splitlines()[-1])


def answer(result: dict[str, Any]) -> NoReturn:
    """Print the answer of this process and end it."""
    sys.stdout.write(f"{json.dumps(result)}\n")
    sys.stdout.flush()
    os._exit(0)  # without the destructors of libraries, which can wait or crash
