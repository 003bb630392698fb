"""Running a command: its log, TensorFlow, and one line and an exit status for every error."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from logging import WARNING, Formatter, LogRecord
from typing import Any, NoReturn

import click

from bilm.commands import terminal
from bilm.commands.options import Option, flag
from bilm.commands.terminal import BROKEN_PIPE, INTERRUPTED
from bilm.errors import BilmError
from bilm.support.installation import conflict
from bilm.support.process import LOG_LEVEL, MUTE, is_loud, keep_freed_memory, quiet, share_cores

FAILED, WRONG_USE = 1, 2
QUIET = "bilm.quiet"  # key of the context's `meta`
FOREIGN = ("/tensorflow/python/", "/tf2onnx/")  # in the paths of modules whose notes are hidden
SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "show_default": True,
    "token_normalize_func": lambda name: name.replace("-", "_"),  # --n-steps is --n_steps
}


class Command(click.Command):
    """A click command with grouped options and --quiet; it starts the log and TensorFlow.

    Args:
        tensorflow: whether the command needs TensorFlow.
        notes: paragraphs that the help shows after the options, or functions that return them.
    """

    def __init__(
        self,
        *args: Any,
        tensorflow: bool = True,
        notes: Sequence[str | Callable[[], str]] = (),
        **kwargs: Any,
    ):
        kwargs.setdefault("context_settings", SETTINGS)
        super().__init__(*args, **kwargs)
        self.tensorflow, self.notes = tensorflow, notes
        flag("--quiet", "Log only warnings and errors.", expose_value=False, callback=_keep_quiet)(
            self
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse repeated options and stray words, which click would ignore or only count."""
        _, stray, order = self.make_parser(ctx).parse_args(list(args))
        seen: set[click.Parameter] = set()
        for parameter in order:
            if isinstance(parameter, Option) and not (parameter.multiple or parameter.is_flag):
                if parameter in seen:
                    raise click.UsageError(f"{parameter.opts[0]} is given twice", ctx)
                seen.add(parameter)
        n_arguments = sum(isinstance(p, click.Argument) for p in self.params)
        if len(stray) > n_arguments:
            raise click.UsageError(_describe_stray(stray[n_arguments:]), ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Start the log and TensorFlow, then call the function. Raises: KeyboardInterrupt."""
        start_log(ctx.meta[QUIET])
        if message := conflict():
            raise BilmError(message)
        keep_freed_memory()
        if self.tensorflow:
            if ctx.params.get("workers") or "TF_CONFIG" in os.environ:
                # When a worker dies, TensorFlow reports each exchange; the command reports it once.
                os.environ.setdefault(LOG_LEVEL, MUTE)
            start_tensorflow()
        with terminal.interruptible() as pressed:
            try:
                return super().invoke(ctx)
            except BaseException:
                if pressed.is_set():
                    raise KeyboardInterrupt from None
                raise

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the docstring of the function."""
        _write_paragraphs(formatter, inspect.cleandoc(self.help or ""))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under the titles of their groups."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Argument):
                continue  # the line "Usage" and the notes describe it
            if record := parameter.get_help_record(ctx):
                title = parameter.group if isinstance(parameter, Option) else ""
                groups.setdefault(title, []).append(record)
        for title in sorted(groups, key=lambda title: not title):
            with formatter.section(title or ("Other options" if len(groups) > 1 else "Options")):
                formatter.write_dl(groups[title], col_max=28)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the notes."""
        for note in self.notes:
            _write_paragraphs(formatter, note if isinstance(note, str) else note())


def _keep_quiet(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.meta[QUIET] = value


def command(name: str | None = None, **settings: Any) -> Callable[[Callable[..., Any]], Command]:
    """Return a decorator that turns a function into a `Command`; see there for `settings`."""
    return click.command(name, cls=Command, **settings)


def run(command: click.Command, program: str, words: Sequence[str]) -> int:
    """Run a command and return the exit status.

    Success is 0, bad input 1, wrong use 2, Ctrl-C 130, and a closed pipe behind standard output
    141. Every error is one line on standard error.

    Args:
        command: a `Command` or a group of them.
        program: its name, for messages, such as `bilm`.
        words: the command line without the program.
    """
    name = program
    try:
        with command.make_context(program, list(words)) as context:
            try:
                status = command.invoke(context)
            finally:
                if context.invoked_subcommand:
                    name = f"{program} {context.invoked_subcommand}"
            return _finish(name, status if isinstance(status, int) else 0)
    except click.exceptions.Exit as stop:  # after --help and --version
        return _finish(name, stop.exit_code)
    except click.UsageError as error:
        return fail(
            error.ctx.command_path if error.ctx else name, error.format_message(), WRONG_USE
        )
    except (KeyboardInterrupt, click.Abort):
        terminal.say("interrupted")
        return INTERRUPTED
    except OSError as error:
        return _fail_with(name, error)
    except (BilmError, ImportError) as error:
        return fail(name, error)
    except MemoryError as error:
        return fail(name, f"out of memory. {error}")
    except UnicodeEncodeError as error:  # TensorFlow accepts only UTF-8 in the names of files
        found = os.fsencode(error.object).decode(errors="backslashreplace")
        return fail(name, f"{found}: the name is not UTF-8 here; set PYTHONUTF8=1, or rename it")


def run_script(command: click.Command) -> NoReturn:
    """Run a command that was started as a script of `bin/`, and exit."""
    terminal.start()
    sys.exit(run(command, os.path.basename(sys.argv[0]), sys.argv[1:]))


def fail(program: str, error: object, status: int = FAILED) -> int:
    """Print an error in one line and return the exit status."""
    message = " ".join(str(error).split())
    if status == WRONG_USE:
        message = f"{message.rstrip('.')}; see {program} --help"
    terminal.say(f"{program}: error: {message}")
    return status


def start_log(is_quiet: bool) -> None:
    """Send the log to standard error as plain lines, and show progress."""
    from absl import flags, logging

    from bilm.support import progress

    flags.FLAGS.mark_as_parsed()  # otherwise absl's log complains about its own, unused flags
    logging.use_absl_handler()
    logging.set_verbosity(logging.WARNING if is_quiet else logging.INFO)
    logging.get_absl_handler().setFormatter(_Printable())
    progress.show_bars(not is_quiet and progress.can_show_bars())


class _Printable(Formatter):
    """Plain log lines with control characters escaped."""

    def format(self, record: LogRecord) -> str:
        return terminal.printable(super().format(record))


def start_tensorflow() -> None:
    """Start TensorFlow; hide its notes from the log unless TF_CPP_MIN_LOG_LEVEL shows them."""
    from absl import logging

    if not is_loud():
        quiet()
        logging.get_absl_handler().addFilter(_is_for_users)
    share_cores()


def _is_for_users(record: LogRecord) -> bool:
    """Return False for notes of TensorFlow and tf2onnx, such as the time of saving a checkpoint."""
    return record.levelno >= WARNING or not any(part in record.pathname for part in FOREIGN)


def _finish(name: str, status: int) -> int:
    """Flush standard output and return the exit status."""
    error = terminal.output_error()
    return status if error is None else _fail_with(name, error)


def _fail_with(name: str, error: OSError) -> int:
    if isinstance(error, BrokenPipeError) and error.filename == terminal.OUTPUT:
        terminal.output_error()  # `| head` has read enough
        return BROKEN_PIPE
    named = error.filename and error.strerror
    return fail(name, f"{os.fsdecode(error.filename)}: {error.strerror}" if named else error)


def _describe_stray(words: Sequence[str]) -> str:
    """Return what may be wrong with words that belong to no option."""
    more = f" and {len(words) - 1} more" if len(words) > 1 else ""
    found = f"unexpected argument {words[0]!r}{more}"
    if not all(map(os.path.exists, words)):
        return f"{found}; every value needs its --option"
    folder, ending = os.path.dirname(words[0]), os.path.splitext(words[0])[1]
    pattern = os.path.join(folder, f"*{ending}")
    return f"{found}; put a pattern of files in quotes, such as '{pattern}'"


def _write_paragraphs(formatter: click.HelpFormatter, text: str) -> None:
    """Write paragraphs; those with indented lines, such as examples, keep their line ends."""
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        formatter.write_paragraph()
        if re.search(r"^ ", paragraph, re.MULTILINE):
            formatter.write("".join(f"{line}\n" for line in paragraph.splitlines()))
        else:
            formatter.write_text(paragraph)
