"""What the commands in bin/ share: flags, a quiet TensorFlow, a plain log, a line for an error."""

from __future__ import annotations

from bilm.commands import terminal

terminal.start()  # before absl is imported, which takes longer than Python's own start

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from logging import WARNING, LogRecord

from absl import app, flags, logging

import bilm
from bilm.commands.terminal import BROKEN_PIPE, INTERRUPTED
from bilm.errors import BilmError
from bilm.process import keep_freed_memory, quiet, share_cores

FLAGS = flags.FLAGS
FAILED, WRONG_USE = 1, 2


def run(
    main: Callable[[], int | None], required: Sequence[str] = (), tensorflow: bool = True
) -> None:
    """Parse the flags, call `main` and exit.

    Bad input ends in one line and status 1, flags that cannot be used in one line and status 2,
    Ctrl-C in status 130, and a reader of the output that has left in 141.

    Args:
        main: the command.
        required: flags that must be given.
        tensorflow: whether it needs TensorFlow, which takes seconds to start.
    """
    app.run(partial(_call, main, tensorflow), flags_parser=partial(_parse, required))


def _call(main: Callable[[], int | None], tensorflow: bool, argv: Sequence[str]) -> int:
    """Call `main` and return the status to exit with."""
    del argv  # `_parse` has refused what is left of it
    # Standard error carries the log, standard output the results.
    logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().setFormatter(None)
    keep_freed_memory()
    try:
        if tensorflow:
            _start_tensorflow()
        with terminal.interruptible() as pressed:
            try:
                status = main() or 0
                return status if (error := terminal.output_error()) is None else _status(error)
            except BaseException:
                if pressed.is_set():
                    raise KeyboardInterrupt from None
                raise
    except KeyboardInterrupt:
        terminal.say("interrupted")
        return INTERRUPTED
    except app.UsageError as error:
        return _fail(error, WRONG_USE)
    except OSError as error:
        return _status(error)
    except (BilmError, ImportError) as error:
        return _fail(error)
    except MemoryError as error:
        return _fail(f"out of memory. {error}")
    except UnicodeEncodeError as error:  # TensorFlow takes names of files as UTF-8 only
        name = os.fsencode(error.object).decode(errors="backslashreplace")
        return _fail(f"{name}: the name is not UTF-8 here; set PYTHONUTF8=1, or rename it")


def _start_tensorflow() -> None:
    """Start TensorFlow and take its own notes out of the log.

    Who sets TF_CPP_MIN_LOG_LEVEL gets every line of that level.
    """
    if "TF_CPP_MIN_LOG_LEVEL" not in os.environ:
        quiet()
        logging.get_absl_handler().addFilter(_is_for_users)
    share_cores()


def _is_for_users(record: LogRecord) -> bool:
    """TensorFlow's own notes, such as how long it took to shard a checkpoint, are not."""
    return record.levelno >= WARNING or "/tensorflow/python/" not in record.pathname


def _name() -> str:
    return os.path.basename(sys.argv[0])


def _fail(error: object, status: int = FAILED) -> int:
    """Say in one line what is wrong, and return the status."""
    message = " ".join(str(error).split())
    if status == WRONG_USE:
        message = f"{message.rstrip('.')}; see {_name()} --help"
    terminal.say(f"{_name()}: error: {message}")
    return status


def _status(error: OSError) -> int:
    if isinstance(error, BrokenPipeError) and error.filename == terminal.OUTPUT:
        terminal.output_error()  # `| head` has seen enough
        return BROKEN_PIPE
    named = error.filename and error.strerror
    return _fail(f"{os.fsdecode(error.filename)}: {error.strerror}" if named else error)


# --- flags ---


class _Help(app.HelpFlag):
    """--help and -h, with the status of a command that did what it was asked to."""

    SHORT_NAME = "h"

    def __init__(self):
        super().__init__()
        self.allow_override = True  # absl has its own, which ends in status 1

    def parse(self, arg) -> None:
        if self._parse(arg):
            app.usage(shorthelp=True, writeto_stdout=True)
            print("\n-h and --help show this, --version the version, --helpfull all flags;")
            print("--flagfile=FILE reads flags from a file, one a line.")
            _exit_without_main()


class _Version(flags.BooleanFlag):
    def __init__(self):
        super().__init__("version", False, "show the version", allow_override=True)

    def parse(self, arg) -> None:
        if self._parse(arg):
            print(f"{_name()} (bilm) {bilm.__version__}")
            _exit_without_main()


def _exit_without_main() -> None:
    error = terminal.output_error()
    sys.exit(0 if error is None else _status(error))


def _parse(required: Sequence[str], argv: Sequence[str]) -> list[str]:
    """Parse the flags; what cannot be used ends in one line and status 2."""
    for flag in (_Help(), _Version()):
        flags.DEFINE_flag(flag)
    FLAGS.set_gnu_getopt()  # a word that stands alone does not hide the flags behind it
    try:
        left = FLAGS(argv)[1:]
    except flags.Error as error:
        sys.exit(_fail(error, WRONG_USE))
    except OSError as error:  # whoever read --help has left
        sys.exit(_status(error))
    twice = [flag.name for flag in {FLAGS[name] for name in FLAGS} if _is_given_twice(flag)]
    # What follows a file of flags may change what it says.
    if twice and not any(word.lstrip("-").startswith("flagfile") for word in argv):
        sys.exit(_fail(f"--{min(twice)} is given twice", WRONG_USE))
    if left:
        sys.exit(_fail(_stray(left), WRONG_USE))
    missing = [f"--{name}" for name in required if FLAGS[name].value is None]
    if missing:
        sys.exit(_fail(f"{', '.join(missing)} must be given", WRONG_USE))
    return [argv[0]]


def _is_given_twice(flag: flags.Flag) -> bool:
    return flag.present > 1 and not isinstance(flag, flags.MultiFlag)


def _stray(words: Sequence[str]) -> str:
    """Say what may be wrong about words that belong to no flag."""
    more = f" and {len(words) - 1} more" if len(words) > 1 else ""
    found = f"unexpected argument {words[0]!r}{more}"
    if not all(map(os.path.exists, words)):
        return f"{found}; every value needs its --flag"
    folder, ending = os.path.dirname(words[0]), os.path.splitext(words[0])[1]
    pattern = os.path.join(folder, f"*{ending}")
    return f"{found}; put a pattern of files in quotes, such as '{pattern}'"
