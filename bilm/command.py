"""What the commands in bin/ share: a quiet TensorFlow, a plain log, one line for an error."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging import WARNING, LogRecord

from absl import app, logging

from bilm.errors import BilmError
from bilm.process import keep_freed_memory, share_cores

INTERRUPTED = 130


def run(main: Callable[[], int | None], tensorflow: bool = True) -> None:
    """Parse the flags, call `main` and exit; bad input ends in one line and status 1.

    Args:
        main: the command.
        tensorflow: whether it needs TensorFlow, which takes seconds to start.
    """

    def guarded(argv: list[str]) -> int | None:
        if len(argv) > 1:
            return _fail(f"unexpected argument {argv[1]!r}; every value needs its --flag")
        # Standard error carries the log, standard output the results.
        logging.set_verbosity(logging.INFO)
        logging.get_absl_handler().setFormatter(None)
        keep_freed_memory()
        try:
            if tensorflow:
                _start_tensorflow()
            return main()
        except (BilmError, OSError) as error:
            return _fail(error)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED

    app.run(guarded)


def _start_tensorflow() -> None:
    """Import TensorFlow and have it look for devices, without the dozen lines it says about it.

    Who sets TF_CPP_MIN_LOG_LEVEL gets every line of that level.
    """
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ:
        share_cores()
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    with _standard_error_held():
        import tensorflow as tf

        share_cores()  # looks for devices
    tf.get_logger().setLevel("ERROR")
    logging.get_absl_handler().addFilter(_is_for_users)


def _is_for_users(record: LogRecord) -> bool:
    """TensorFlow's own notes, such as how long it took to shard a checkpoint, are not."""
    return record.levelno >= WARNING or "/tensorflow/python/" not in record.pathname


@contextmanager
def _standard_error_held() -> Iterator[None]:
    """Hold back what the block writes on standard error, in C++ too, unless it raises."""
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            os.write(terminal, held.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def _fail(error: object) -> int:
    message = " ".join(str(error).split())
    print(f"{os.path.basename(sys.argv[0])}: error: {message}", file=sys.stderr)
    return 1
