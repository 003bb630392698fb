"""The program `bilm`: its subcommands, each imported when it is used, and what they all share."""

import atexit
import importlib
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import partial
from inspect import cleandoc
from logging import WARNING, Formatter, LogRecord
from typing import Any, NoReturn

import click
import cloup
from click.shell_completion import CompletionItem

import bilm
from bilm.commands import listing
from bilm.commands.output import flush_output, printable, say
from bilm.errors import ArgumentError, BilmError
from bilm.support import process
from bilm.support.entry_points import PluginError
from bilm.support.imports import WITHOUT_TENSORFLOW
from bilm.support.urls import masked

NOTES = """
\b
Examples:
  bilm vocab --input 'corpus/*.txt' --output vocab.txt --min_count 3
  bilm train --input 'corpus/*.txt' --vocab vocab.txt --output run --options small
  bilm export --model run --output elmo
  bilm embed --model elmo --input corpus.txt --output corpus.hdf5

Option names may be written with dashes or underscores. To enable shell completion, add this line to
~/.bashrc (for zsh: to ~/.zshrc, with zsh_source instead of bash_source):

\b
  eval "$(_BILM_COMPLETE=bash_source bilm)"
"""
INTERRUPTED = 130  # exit status: 128 plus the number of the signal
START = "bilm.start"  # key of the context's `meta`: the time at which the command started
# Parts of the paths of modules whose notes are hidden.
FOREIGN = ("/tensorflow/python/", "/tf2onnx/", "/aiobotocore/", "/botocore/", "/fsspec/", "/s3fs/")


def _underscored(name: str) -> str:
    return name.replace("-", "_")  # --n-steps is --n_steps


HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
SETTINGS = HELP | {
    "show_default": True,
    "align_option_groups": False,
    "formatter_settings": {"col1_max_width": 28},
    "token_normalize_func": _underscored,
}


class Program(cloup.Group):
    """The subcommands in `COMMANDS` and those of entry points; each is imported when it is used."""

    def list_sections(self, *_: object, **__: object) -> list[cloup.Section]:
        return listing.listed_commands().sections

    def list_commands(self, ctx: click.Context | None) -> list[str]:
        return [command.name or "" for command in self._listed()]

    def _listed(self) -> Iterator[click.Command]:
        for section in listing.listed_commands().sections:
            yield from section.commands.values()

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        if cmd_name in listing.COMMANDS:
            return getattr(importlib.import_module(f"bilm.commands.{cmd_name}"), cmd_name)
        command = listing.plugin(cmd_name)
        if command is None:  # click suggests similar names of `self.commands`
            self.commands = {command.name or "": command for command in self._listed()}
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for problem in listing.listed_commands().problems:
            say(f"{ctx.command_path}: warning: {problem}")
        super().format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        items = [
            CompletionItem(command.name, help=command.get_short_help_str())
            for command in self._listed()
            if (command.name or "").startswith(incomplete)
        ]
        return items + click.Command.shell_complete(self, ctx, incomplete)


@click.group("bilm", cls=Program, no_args_is_help=False, context_settings=HELP, epilog=NOTES)
@click.version_option(bilm.__version__, message="bilm %(version)s")
def cli() -> None:
    """Train, evaluate and use the bidirectional language model behind ELMo."""


def main() -> NoReturn:
    run_script(cli, "bilm")


def run_script(command: click.Command, program: str | None = None) -> NoReturn:
    """Run a command with the words of the command line, and exit. `program`: name in messages."""
    _on_interrupt(signal.SIG_DFL)
    _open_streams()
    status = run(command, program or os.path.basename(sys.argv[0]), sys.argv[1:])
    # Not `sys.exit`: TensorFlow's destructors take seconds, in a worker up to a minute, while a
    # scheduler that sent SIGTERM waits for the process. All files are complete by now.
    atexit._run_exitfuncs()  # removes temporary folders and ends the log
    try:
        flush_output()
    except (OSError, ValueError):
        status = status or Failure.exit_code  # of a lost result
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(status)


def _open_streams() -> None:
    """Make the standard streams UTF-8 in every locale. Closed streams become the null device,
    because the next opened file would get their descriptor; writing to standard output fails."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            flags = os.O_RDWR if name == "stderr" else os.O_RDONLY
            setattr(sys, name, open(os.open(os.devnull, flags), mode))  # noqa: SIM115
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)


def like_reference(
    command: click.Command,
    help: str,
    names: Mapping[str, str],
    callback: Callable[..., Any] | None = None,
    **defaults: str,
) -> click.Command:
    """Return a command that also accepts the options of one of bilm-tf's scripts, which `names`
    maps to its own. `defaults` describe the defaults of `callback`, its function, by option."""
    script = deepcopy(command)
    for option in script.params:
        if isinstance(option, click.Option) and option.name in defaults:
            option.show_default = defaults[option.name]
    script.help = _with_kept_lines(help)
    script.callback = callback or command.callback
    script.context_settings = SETTINGS | {
        "token_normalize_func": lambda name: names.get(_underscored(name), _underscored(name))
    }
    return script


def run(command: click.Command, program: str, words: Sequence[str]) -> int:
    """Run a command with the words of a command line; return the exit status: 0 for success, 1 for
    bad input, 2 for wrong use, 130 after Ctrl-C. Errors are one line."""
    try:
        status = command.main(list(words), program, standalone_mode=False)
        return status if isinstance(status, int) else 0
    except click.UsageError as error:
        name = error.ctx.command_path if error.ctx else program
        message = masked(" ".join(error.format_message().split()))
        if not isinstance(error, Failure):
            message = f"{message.rstrip('.')}; see {name} --help"
        say(f"{name}: error: {message}")
        return error.exit_code
    except (OSError, PluginError) as error:  # of the help, or of the command of another package
        say(f"{program}: error: {error}")
        return Failure.exit_code


class Failure(click.UsageError):
    """An error of a command that was used correctly."""

    exit_code = 1


class Command(cloup.Command):
    """A command with --quiet, which starts the log, and TensorFlow if it is always needed. The help
    shows the `notes` after the options."""

    def __init__(
        self, *args: Any, tensorflow: bool = False, notes: Sequence[str] = (), **kwargs: Any
    ):
        quiet = cloup.Option(["--quiet"], is_flag=True, help="Log only warnings and errors.")
        kwargs["params"] = [*kwargs["params"], quiet]
        kwargs["help"] = _with_kept_lines(cleandoc(kwargs["help"]))
        kwargs["epilog"] = _with_kept_lines("\n\n".join(note.strip("\n") for note in notes))
        super().__init__(*args, **{"context_settings": SETTINGS, **kwargs})
        self.tensorflow = tensorflow

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse repeated options (click would use only the last one) and stray words."""
        with click.core.augment_usage_errors(ctx):
            _, stray, order = self.make_parser(ctx).parse_args(list(args))
        for option in order:
            is_single = isinstance(option, click.Option) and not (option.multiple or option.is_flag)
            if is_single and order.count(option) > 1:
                raise click.UsageError(f"{option.opts[0]} is given twice", ctx)
        if len(stray) > len(self.arguments):
            raise click.UsageError(
                f"unexpected argument {stray[len(self.arguments)]!r}; every value needs its "
                "--option, and a pattern of files must be in quotes", ctx
            )  # fmt: skip
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Start the log and TensorFlow, then call the function. Raises: Failure, Exit."""
        ctx.meta[START] = time.monotonic()
        start_log(ctx.params.pop("quiet"))
        try:
            process.keep_freed_memory()
            process.grow_gpu_memory()
            if self.tensorflow or ctx.params.get("tokenize"):  # spaCy imports TensorFlow
                if ctx.params.get("workers") or "TF_CONFIG" in os.environ:
                    # When a worker dies, TensorFlow logs every failed exchange; the command prints
                    # one error.
                    os.environ.setdefault(process.LOG_LEVEL, process.MUTE)
                start_tensorflow()
            with _interruptible():
                self._fetch(ctx)
                status = super().invoke(ctx)
            flush_output()
            return status
        except BrokenPipeError:
            raise  # `| head` has read enough
        except ArgumentError as error:
            raise click.UsageError(str(error), ctx) from error
        except (BilmError, OSError, ImportError, MemoryError) as error:
            raise Failure(_described(error), ctx) from error

    def _fetch(self, ctx: click.Context) -> None:
        """Replace URLs of files that a command opens by path with paths of local copies."""
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            if value is not None and getattr(parameter.type, "fetched", False):
                from bilm.storage.finding.download import local_copy

                ctx.params[parameter.name or ""] = os.fspath(local_copy(value))


command = partial(cloup.command, cls=Command)  # decorator that turns a function into a `Command`


def _with_kept_lines(text: str) -> str:
    """Mark the paragraphs with indented lines, such as examples, whose line ends click keeps."""
    paragraphs = text.strip("\n").split("\n\n")
    marked = (f"\b\n{part}" if "\n  " in part else part for part in paragraphs)
    return "\n\n".join(marked)


def _described(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name in ("tensorflow", "keras"):
        needed = f"requires {error.name}, which is not installed: pip install tensorflow"
        return f"{needed}. Without TensorFlow, bilm {WITHOUT_TENSORFLOW}"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return f"out of memory. {error}" if isinstance(error, MemoryError) else str(error)


def start_log(is_quiet: bool) -> None:
    """Send the log to standard error as plain lines, by default without notes of other packages."""
    from absl import flags, logging

    flags.FLAGS.mark_as_parsed()  # otherwise absl's log complains about its own, unused flags
    logging.use_absl_handler()
    logging.set_verbosity(logging.WARNING if is_quiet else logging.INFO)
    logging.get_absl_handler().setFormatter(_Printable())
    if not process.is_loud():
        logging.get_absl_handler().addFilter(_is_for_users)


class _Printable(Formatter):
    """Plain log lines with control characters escaped and secrets in URLs masked."""

    def format(self, record: LogRecord) -> str:
        return printable(masked(super().format(record)))


def _is_for_users(record: LogRecord) -> bool:
    """Return False for notes of other packages, such as the time of saving a checkpoint."""
    return record.levelno >= WARNING or not any(part in record.pathname for part in FOREIGN)


def start_tensorflow() -> None:
    """Start TensorFlow, without its notes unless TF_CPP_MIN_LOG_LEVEL shows them."""
    process.quiet()
    process.share_cores()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise Exit with status 130 inside the block, so that temporary files are removed;
    elsewhere it ends the process at once, because imports turn the exception into another one."""
    pressed = threading.Event()

    def interrupt(*_: object) -> None:
        pressed.set()
        raise KeyboardInterrupt

    _on_interrupt(interrupt)
    try:
        yield
    except BaseException as error:
        if not (pressed.is_set() or isinstance(error, KeyboardInterrupt)):
            raise
        say("interrupted")
        raise click.exceptions.Exit(INTERRUPTED) from None
    finally:
        _on_interrupt(signal.SIG_DFL)


def _on_interrupt(handler: Callable[..., None] | signal.Handlers) -> None:
    # `nohup` and the background jobs of a shell ignore Ctrl-C on purpose.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)
