"""Shared by the examples: start the log, run `main`, and end with one line if the input is bad."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

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


def add_vectors(flags: argparse.ArgumentParser) -> None:
    """Declare --no_elmo and --precision."""
    flags.add_argument(
        "--no_elmo", dest="elmo", action="store_false", help="use learned word vectors only"
    )
    flags.add_argument(
        "--precision",
        choices=("float32", "bfloat16", "int8"),
        default="float32",
        help="precision of ELMo's vectors (default: %(default)s)",
    )


def with_vectors(items: list[Any], embedder: Any) -> list[Any]:
    """Return named tuples with the fields `words` and `vectors`, now with their vectors.

    `embedder` has the method `embed_sentences` of `bilm.ElmoEmbedder`.
    """
    vectors = embedder.embed_sentences(item.words for item in items)
    return [item._replace(vectors=found) for item, found in zip(items, vectors, strict=True)]


def precomputed(args: argparse.Namespace, *data_sets: list[Any]) -> tuple[list[Any], ...]:
    """Return data sets with the vectors of ELMo, unchanged with --no_elmo."""
    if not args.elmo:
        return data_sets
    embedder = bilm.ElmoEmbedder(args.model, args.weights, precision=args.precision)
    return tuple(with_vectors(items, embedder) for items in data_sets)


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
