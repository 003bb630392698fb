"""Shared by the examples: start the log, run `main`, and end with one line if the input is bad."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import NoReturn

import bilm

INTERRUPTED = 130  # exit status after Ctrl-C


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the docstring of an example."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def add_model(flags: argparse.ArgumentParser, default: str | None = "novels-en") -> None:
    """Declare --model and --weights."""
    flags.add_argument("--model", default=default, help="stored biLM (default: %(default)s)")
    flags.add_argument("--weights", help="HDF5 weights if --model is an options.json")


def run(
    main: Callable[[argparse.Namespace], int | None], flags: argparse.ArgumentParser
) -> NoReturn:
    """Parse the command line, call `main` and exit. Bad input ends in one line and status 1."""
    args = flags.parse_args()
    start_log()
    bilm.quiet()
    try:
        sys.exit(main(args))
    except bilm.BilmError as error:
        sys.exit(f"{flags.prog}: error: {error}")
    except OSError as error:
        sys.exit(f"{flags.prog}: error: {os.fsdecode(error.filename or '')}: {error.strerror}")


def start_log() -> None:
    """Log plain lines to standard error."""
    from absl import flags, logging

    flags.FLAGS.mark_as_parsed()
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().setFormatter(None)
