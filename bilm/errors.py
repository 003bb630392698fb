"""Errors about input. Each message is one line, and all errors have one base class."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class BilmError(ValueError):
    """Base class of all errors that bilm raises about its input. The message names the file and the
    line or key, what was found and what was expected. Commands print it without a traceback."""


class OptionsError(BilmError):
    """An options file or value that cannot be used."""


class ArgumentError(OptionsError):
    """Arguments of a function, or options of a command, that contradict each other."""


class InvalidNumberOfCharacters(OptionsError):
    """The options of a new run have 262 characters, which is the number of an export."""


class DataError(BilmError):
    """A corpus, vocabulary or sentence that cannot be used."""


class WeightsError(BilmError):
    """A weight file or checkpoint that cannot be used."""


class NotFiniteError(BilmError):
    """A loss or gradient that is infinite or NaN."""


class OutOfMemoryError(BilmError):
    """The machine or a GPU ran out of memory."""


class HostError(BilmError):
    """Another worker process of a run on several hosts failed, disappeared or differs."""


@contextmanager
def explaining_memory(what: str, smaller: str) -> Iterator[None]:
    """Turn a failed allocation in the block into an OutOfMemoryError of one line, with the text or
    folder that was processed and the options whose reduction saves memory."""
    try:
        yield
    except Exception as error:
        tensorflow = sys.modules.get("tensorflow")  # None if it is not in use
        exhausted = tensorflow.errors.ResourceExhaustedError if tensorflow else MemoryError
        if not isinstance(error, MemoryError | exhausted):
            raise
        reason = next(iter(str(error).strip().splitlines()), "no memory left")
        raise OutOfMemoryError(f"{what}: out of memory ({reason}); reduce {smaller}") from None


def require_one_of(name: str, value: object, allowed: Iterable[object]) -> None:
    """Raise OptionsError unless the value of an argument is one of the allowed values."""
    allowed = list(allowed)
    if value not in allowed:
        raise OptionsError(f"{name} is {value!r}, expected one of {', '.join(map(str, allowed))}")
