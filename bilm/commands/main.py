"""The program `bilm`: its subcommands, each imported when it is used, and what they all share.

`run` runs a command: it starts the log and TensorFlow, and turns every error into one line and an
exit status.
"""

from __future__ import annotations

import atexit
import difflib
import importlib
import inspect
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from logging import WARNING, Formatter, LogRecord
from typing import Any, NoReturn

import click

import bilm
from bilm.commands.output import OUTPUT, open_streams, output_error, printable, say
from bilm.errors import BilmError
from bilm.support.imports import conflict
from bilm.support.process import (
    LOG_LEVEL,
    MUTE,
    grow_gpu_memory,
    is_loud,
    keep_freed_memory,
    quiet,
    share_cores,
)
from bilm.support.urls import masked

# Each module of this package defines a command of the same name, with underscores for dashes; the
# help lists them in this order.
COMMANDS = (
    "text", "vocab", "train", "test", "export", "finetune", "embed", "score", "surprisal",
    "minimal-pairs", "substitutes", "usages", "change", "explore", "info", "models",
    "cache", "doctor"
)  # fmt: skip
COMPLETION = "_BILM_COMPLETE"
NOTES = """
Examples:
  bilm vocab --input 'corpus/*.txt' --output vocab.txt --min_count 3
  bilm train --input 'corpus/*.txt' --vocab vocab.txt --output run --options small
  bilm export --model run --output elmo
  bilm embed --model elmo --input corpus.txt --output corpus.hdf5

Option names may be written with dashes or underscores. To enable shell completion, add this line to
~/.bashrc (for zsh: to ~/.zshrc, with zsh_source instead of bash_source):
  eval "$(_BILM_COMPLETE=bash_source bilm)"
"""
FAILED, WRONG_USE = 1, 2  # exit statuses
INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 plus the number of the signal, as shells report them
IS_WORKER = threading.Event()  # set if this process is one of several workers of a run
NO_TENSORFLOW = (
    "requires TensorFlow, which is not installed: pip install tensorflow. Without TensorFlow, bilm "
    "embeds and scores with exported models on PyTorch or JAX, but cannot train or read checkpoints"
)
QUIET = "bilm.quiet"  # key of the context's `meta`
# Parts of the paths of modules whose notes are hidden.
FOREIGN = (
    "/tensorflow/python/", "/tf2onnx/", "/gensim/", "/aiobotocore/", "/botocore/", "/fsspec/",
    "/s3fs/", "/py4j/",
)  # fmt: skip
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
SETTINGS = HELP | {
    "show_default": True,
    "token_normalize_func": lambda name: name.replace("-", "_"),  # --n-steps is --n_steps
}


class LazyGroup(click.Group):
    """The subcommands of `COMMANDS`; a module is imported when its command is used or listed."""

    def list_commands(self, ctx: click.Context | None) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        return getattr(importlib.import_module(f"bilm.commands.{name}"), name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; suggest one if the name is unknown."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(COMMANDS)}"
            raise click.UsageError(f"unknown command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(NOTES)


@click.group("bilm", cls=LazyGroup, no_args_is_help=False, context_settings=HELP)
@click.version_option(bilm.__version__, message="bilm %(version)s")
def cli() -> None:
    """Train, evaluate and use the bidirectional language model behind ELMo."""


def main() -> NoReturn:
    """Run `bilm` with the arguments of the command line, and exit."""
    _start()
    if instruction := os.environ.get(COMPLETION):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(cli, {}, "bilm", COMPLETION, instruction))
    _end(run(cli, "bilm", sys.argv[1:]))


def run_script(command: click.Command) -> NoReturn:
    """Run a command that was started as a script of `bin/`, and exit."""
    _start()
    _end(run(command, os.path.basename(sys.argv[0]), sys.argv[1:]))


def _start() -> None:
    _exit_on_interrupt()
    open_streams()


def _end(status: int) -> NoReturn:
    """Exit. A worker of a run exits without the destructors of TensorFlow."""
    if not IS_WORKER.is_set():
        sys.exit(status)
    # The destructors of TensorFlow's context and of its server wait for each other's threads, for
    # up to a minute after the last line, while a scheduler that sent SIGTERM waits for the process.
    # All files are complete by now: the checkpoint is saved, and the curves are flushed with it.
    atexit._run_exitfuncs()  # removes temporary folders and ends the log
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    output_error()
    os._exit(status)


# --- commands ---


class Option(click.Option):
    """An option that the help shows under the title of its group."""

    group = ""


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
        super().__init__(*args, **{"context_settings": SETTINGS, **kwargs})
        self.tensorflow, self.notes = tensorflow, notes
        text = "Log only warnings and errors."
        self.params.append(
            Option(["--quiet"], is_flag=True, help=text, expose_value=False, callback=_keep_quiet)
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse repeated options (click would use only the last one) and stray words."""
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
        grow_gpu_memory()
        if self.tensorflow:
            if ctx.params.get("workers") or "TF_CONFIG" in os.environ:
                # When a worker dies, TensorFlow logs every failed exchange; the command prints one
                # error.
                os.environ.setdefault(LOG_LEVEL, MUTE)
            start_tensorflow()
        with _interruptible() as pressed:
            try:
                self._fetch(ctx)
                return super().invoke(ctx)
            except BaseException:
                if pressed.is_set():
                    raise KeyboardInterrupt from None
                raise

    def _fetch(self, ctx: click.Context) -> None:
        """Replace URLs of files that a command opens by path with paths of local copies."""
        for parameter in self.params:
            fetch, name = getattr(parameter.type, "fetch", None), parameter.name or ""
            if fetch is not None and ctx.params.get(name) is not None:
                ctx.params[name] = fetch(ctx.params[name])

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
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
        for note in self.notes:
            _write_paragraphs(formatter, note if isinstance(note, str) else note())


command = partial(click.command, cls=Command)  # decorator that turns a function into a `Command`


def _keep_quiet(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.meta[QUIET] = value


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


# --- running a command ---


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
        try:
            with command.make_context(program, list(words)) as context:
                try:
                    status = command.invoke(context)
                finally:
                    if context.invoked_subcommand:
                        name = f"{program} {context.invoked_subcommand}"
        except click.exceptions.Exit as stop:  # after --help and --version
            status = stop.exit_code
        if unwritten := output_error():
            raise unwritten
        return status if isinstance(status, int) else 0
    except click.UsageError as wrong:
        own = wrong.ctx.command_path if wrong.ctx else name
        return _fail(own, f"{wrong.format_message().rstrip('.')}; see {own} --help", WRONG_USE)
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        return INTERRUPTED
    except OSError as error:
        if isinstance(error, BrokenPipeError) and error.filename == OUTPUT:
            output_error()  # `| head` has read enough
            return BROKEN_PIPE
        named = error.filename and error.strerror
        return _fail(name, f"{os.fsdecode(error.filename)}: {error.strerror}" if named else error)
    except (BilmError, ImportError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "tensorflow":
            return _fail(name, NO_TENSORFLOW)
        return _fail(name, error)
    except MemoryError as error:
        return _fail(name, f"out of memory. {error}")
    except UnicodeEncodeError as error:  # TensorFlow accepts only UTF-8 in the names of files
        found = os.fsencode(error.object).decode(errors="backslashreplace")
        return _fail(name, f"{found}: the name is not UTF-8 here; set PYTHONUTF8=1, or rename it")


def _fail(program: str, error: object, status: int = FAILED) -> int:
    """Print an error in one line and return the exit status."""
    say(f"{program}: error: {masked(' '.join(str(error).split()))}")
    return status


def start_log(is_quiet: bool) -> None:
    """Send the log to standard error as plain lines, and show progress.

    Notes of other packages are hidden unless TF_CPP_MIN_LOG_LEVEL shows them.
    """
    from absl import flags, logging

    from bilm.support.progress import show_bars

    flags.FLAGS.mark_as_parsed()  # otherwise absl's log complains about its own, unused flags
    logging.use_absl_handler()
    logging.set_verbosity(logging.WARNING if is_quiet else logging.INFO)
    logging.get_absl_handler().setFormatter(_Printable())
    if not is_loud():
        logging.get_absl_handler().addFilter(_is_for_users)
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    show_bars(is_terminal and not is_quiet)


class _Printable(Formatter):
    """Plain log lines with control characters escaped and secrets in URLs masked."""

    def format(self, record: LogRecord) -> str:
        return printable(masked(super().format(record)))


def start_tensorflow() -> None:
    """Start TensorFlow, without its notes unless TF_CPP_MIN_LOG_LEVEL shows them."""
    if not is_loud():
        quiet()
    share_cores()


def _is_for_users(record: LogRecord) -> bool:
    """Return False for notes of other packages, such as the time of saving a checkpoint."""
    return record.levelno >= WARNING or not any(part in record.pathname for part in FOREIGN)


# --- Ctrl-C ---


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Make Ctrl-C raise KeyboardInterrupt inside the block, so that temporary files are removed.

    Before and after the block, Ctrl-C ends the process at once: during an import the exception
    could become another one, and during the exit of Python it would print a traceback.

    Yields: an event that Ctrl-C sets; the interrupted code may replace the exception by another.
    """
    pressed = threading.Event()

    def handler(*_: object) -> None:
        pressed.set()
        raise KeyboardInterrupt

    _on_interrupt(handler)
    try:
        yield pressed
    finally:
        _exit_on_interrupt()


def _exit_on_interrupt() -> None:
    def handler(*_: object) -> None:
        os.write(2, b"interrupted\n")
        os._exit(INTERRUPTED)

    _on_interrupt(handler)


def _on_interrupt(handler: Callable[..., None]) -> None:
    # `nohup` and the background jobs of a shell ignore Ctrl-C on purpose.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)
