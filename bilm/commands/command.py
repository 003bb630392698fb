"""Running a command: its flags, a quiet TensorFlow, a plain log, one line for an error."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from logging import WARNING, LogRecord
from typing import NoReturn, Protocol

import bilm
from bilm.commands import terminal
from bilm.commands.bar import Bar, is_watched
from bilm.commands.flags import Flags, WrongUse
from bilm.commands.terminal import BROKEN_PIPE, INTERRUPTED
from bilm.errors import BilmError
from bilm.installation import conflict
from bilm.process import LOG_LEVEL, MUTE, is_loud, keep_freed_memory, quiet, share_cores
from bilm.progress import Progress, show_as
from bilm.training.cluster import TF_CONFIG

FAILED, WRONG_USE = 1, 2
NOT_OURS = ("/tensorflow/python/", "/tf2onnx/")  # in the paths of modules


class Command(Protocol):
    """What the module of a command defines; `TENSORFLOW = False` beside it if it needs none."""

    __doc__: str | None

    def define_flags(self, flags: Flags) -> None:
        """Declare the flags."""

    def main(self, args: argparse.Namespace) -> int | None:
        """Do what the command is for, and return the status to exit with; None for 0."""


def run(command: Command, program: str, words: Sequence[str], old_names: bool = False) -> int:
    """Run a command and return the status to exit with.

    Bad input ends in one line and status 1, flags that cannot be used in one line and status 2,
    Ctrl-C in status 130, and a reader of the output that has left in 141.

    Args:
        command: the module.
        program: what the user has called it by, such as `bilm train`.
        words: of the command line, after those.
        old_names: see `Flags`.
    """
    flags = Flags(program, command.__doc__ or "", old_names)
    command.define_flags(flags)
    try:
        args = flags.parse(words)
    except WrongUse as error:
        return fail(program, error, WRONG_USE)
    except OSError as error:
        return _status(program, error)
    if args.help:
        return print_text(flags.help().rstrip())
    if args.version:
        return print_text(version(program))
    return _call(command, program, args)


def run_script(command: Command) -> NoReturn:
    """Run a module that was started as a script, an example, and exit."""
    terminal.start()
    sys.exit(run(command, os.path.basename(sys.argv[0]), sys.argv[1:]))


def version(program: str) -> str:
    """Return the line that --version prints."""
    name = "bilm" if program.startswith("bilm") else f"{program} (bilm)"
    return f"{name} {bilm.__version__}"


def print_text(text: str) -> int:
    """Print a text on standard output and return the status to exit with."""
    try:
        print(text)
        error = terminal.output_error()
    except OSError as reason:
        error = reason
    return 0 if error is None else _status("bilm", error)


def fail(program: str, error: object, status: int = FAILED) -> int:
    """Say in one line what is wrong, and return the status."""
    message = " ".join(str(error).split())
    if status == WRONG_USE:
        message = f"{message.rstrip('.')}; see {program} --help"
    terminal.say(f"{program}: error: {message}")
    return status


def _call(command: Command, program: str, args: argparse.Namespace) -> int:
    """Call `main` of a command and return the status to exit with."""
    _start_log(args.quiet)
    if message := conflict():
        return fail(program, message)
    keep_freed_memory()
    try:
        if getattr(command, "TENSORFLOW", True):
            if getattr(args, "workers", None) or TF_CONFIG in os.environ:
                # When a worker dies, TensorFlow says so of each exchange; the command says it once.
                os.environ.setdefault(LOG_LEVEL, MUTE)
            _start_tensorflow()
        with terminal.interruptible() as pressed:
            try:
                status = command.main(args) or 0
                error = terminal.output_error()
                return status if error is None else _status(program, error)
            except BaseException:
                if pressed.is_set():
                    raise KeyboardInterrupt from None
                raise
    except KeyboardInterrupt:
        terminal.say("interrupted")
        return INTERRUPTED
    except WrongUse as error:
        return fail(program, error, WRONG_USE)
    except OSError as error:
        return _status(program, error)
    except (BilmError, ImportError) as error:
        return fail(program, error)
    except MemoryError as error:
        return fail(program, f"out of memory. {error}")
    except UnicodeEncodeError as error:  # TensorFlow takes names of files as UTF-8 only
        name = os.fsencode(error.object).decode(errors="backslashreplace")
        return fail(program, f"{name}: the name is not UTF-8 here; set PYTHONUTF8=1, or rename it")


def _start_log(is_quiet: bool) -> None:
    """Standard error carries the log, as plain lines, standard output the results."""
    from absl import flags, logging

    flags.FLAGS.mark_as_parsed()  # absl's own, which nobody gives; until then its log complains
    logging.use_absl_handler()
    logging.set_verbosity(logging.WARNING if is_quiet else logging.INFO)
    logging.get_absl_handler().setFormatter(None)
    show_as(Bar if is_watched() and not is_quiet else Progress)


def _start_tensorflow() -> None:
    """Start TensorFlow and take its own notes out of the log, unless the user asks for them."""
    from absl import logging

    if not is_loud():
        quiet()
        logging.get_absl_handler().addFilter(_is_for_users)
    share_cores()


def _is_for_users(record: LogRecord) -> bool:
    """Notes of TensorFlow and tf2onnx, such as how long it took to shard a checkpoint, are not."""
    return record.levelno >= WARNING or not any(part in record.pathname for part in NOT_OURS)


def _status(program: str, error: OSError) -> int:
    if isinstance(error, BrokenPipeError) and error.filename == terminal.OUTPUT:
        terminal.output_error()  # `| head` has seen enough
        return BROKEN_PIPE
    named = error.filename and error.strerror
    return fail(program, f"{os.fsdecode(error.filename)}: {error.strerror}" if named else error)
