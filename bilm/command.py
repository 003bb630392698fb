"""What the commands in bin/ share: a quiet TensorFlow, a plain log, one line for an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from absl import app, logging

from bilm.errors import BilmError

INTERRUPTED = 130


def run(main: Callable[[], int | None]) -> None:
    """Parse the flags, call `main` and exit; bad input ends in one line and status 1."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    def guarded(argv: list[str]) -> int | None:
        if len(argv) > 1:
            return _fail(f"unexpected argument {argv[1]!r}; every value needs its --flag")
        # Standard error carries the log, standard output the results.
        logging.set_verbosity(logging.INFO)
        logging.get_absl_handler().setFormatter(None)
        try:
            return main()
        except (BilmError, OSError) as error:
            return _fail(error)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED

    app.run(guarded)


def _fail(error: object) -> int:
    message = " ".join(str(error).split())
    print(f"{os.path.basename(sys.argv[0])}: error: {message}", file=sys.stderr)
    return 1
